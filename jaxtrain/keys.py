"""PRNG keys, derived from the root key by folding in a purpose and indices.

No generator state has to be saved, and keys do not depend on the number of devices,
processes or data workers.
"""

import jax

# Purposes of keys. Never change or reuse a number, as this changes a seed's results.
INIT, AUGMENT, DROPOUT, ROUNDING = 0, 1, 2, 3
# Random numbers per example that are the same in all epochs.
EXAMPLE = 4
# Random numbers that all examples of a step share, such as for mixup.
MIX = 5
# Evaluation: bootstrap resamples, and starting points of adversarial attacks.
RESAMPLE, ATTACK = 6, 7
# Random numbers per example in a training method.
METHOD = 8
# Gradient noise in step transforms.
GRADIENTS = 9


def root_key(seed: int) -> jax.Array:
    return jax.random.key(seed)


def stream(root: jax.Array, purpose: int) -> jax.Array:
    return jax.random.fold_in(root, purpose)


def at_step(root: jax.Array, purpose: int, step: jax.Array) -> jax.Array:
    """Return the key of a purpose (a constant of this module) at a step."""
    return jax.random.fold_in(stream(root, purpose), step)


def example_keys(key: jax.Array, index: jax.Array) -> jax.Array:
    """Return the key of each example, (B,), for a training method.

    Args:
      key: Key of the micro-batch; dropout keys are derived from it, too.
      index: Indices of the examples, (B,).
    """
    return jax.vmap(lambda i: jax.random.fold_in(stream(key, METHOD), i))(index)
