"""Randomness as a function of position: a key is the root folded with what it is for.

Nothing is drawn in sequence, so no generator state is saved, and a key does not depend
on the number of devices, processes or data workers.
"""

import jax

# What a key is for. A number, once used, stays: it is part of what a seed means.
INIT, AUGMENT, DROPOUT, ROUNDING = 0, 1, 2, 3
# What an example keeps over the epochs.
EXAMPLE = 4
# What all examples of a step have in common.
MIX = 5
# Of evaluations: which examples a resample has, and where an attack starts.
RESAMPLE, ATTACK = 6, 7
# Of a training method: what it draws for each example.
METHOD = 8
# Of transforms of the step: what they add to the gradients.
GRADIENTS = 9


def root_key(seed: int) -> jax.Array:
    return jax.random.key(seed)


def stream(root: jax.Array, purpose: int) -> jax.Array:
    return jax.random.fold_in(root, purpose)


def at_step(root: jax.Array, purpose: int, step: jax.Array) -> jax.Array:
    """Return the key of one purpose at one step."""
    return jax.random.fold_in(stream(root, purpose), step)


def of_examples(key: jax.Array, index: jax.Array) -> jax.Array:
    """Return a key of each example, (B,), for what a training method draws.

    Args:
      key: Key of the micro-batch, which the model draws from, too.
      index: Numbers of the examples, (B,).
    """
    return jax.vmap(lambda i: jax.random.fold_in(stream(key, METHOD), i))(index)
