"""PRNG keys as a function of position: the root key, folded with purpose and indices.

There is no sequential generator state to save, and keys do not depend on the number of
devices, processes or data workers.
"""

import jax

# Purposes of keys. Never change or reuse a number: a seed would give other results.
INIT, AUGMENT, DROPOUT, ROUNDING = 0, 1, 2, 3
# Draws of an example that are the same in all epochs.
EXAMPLE = 4
# Draws shared by all examples of a step.
MIX = 5
# Evaluation: bootstrap resamples, and starting points of adversarial attacks.
RESAMPLE, ATTACK = 6, 7
# Per-example draws of a training method.
METHOD = 8
# Gradient noise of step transforms.
GRADIENTS = 9


def root_key(seed: int) -> jax.Array:
    return jax.random.key(seed)


def stream(root: jax.Array, purpose: int) -> jax.Array:
    return jax.random.fold_in(root, purpose)


def at_step(root: jax.Array, purpose: int, step: jax.Array) -> jax.Array:
    """Return the key of a purpose at a step."""
    return jax.random.fold_in(stream(root, purpose), step)


def example_keys(key: jax.Array, index: jax.Array) -> jax.Array:
    """Return the key of each example, (B,), for the draws of a training method.

    Args:
      key: Key of the micro-batch, from which the model's keys (dropout) also derive.
      index: Indices of the examples, (B,).
    """
    return jax.vmap(lambda i: jax.random.fold_in(stream(key, METHOD), i))(index)
