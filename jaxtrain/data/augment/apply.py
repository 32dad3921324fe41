"""Per-example application of augmentations, with PRNG keys."""

from collections.abc import Callable
from typing import Any

import jax


def make_keys(
    root_key: jax.Array,
    step: jax.Array,
    indices: jax.Array,
    repeat: jax.Array | None = None,
) -> jax.Array:
    """Derive a PRNG key for each example, (B,), from the root key.

    Args:
      root_key: Root key of the stream.
      step: Number of the step.
      indices: Indices of the examples, (B,).
      repeat: Occurrence number of each example within the batch, from 0, (B,). None
        means that examples are not repeated.
    """
    keys = fold_each(jax.random.fold_in(root_key, step), indices)
    return keys if repeat is None else jax.vmap(jax.random.fold_in)(keys, repeat)


def fold_each(key: jax.Array, indices: jax.Array) -> jax.Array:
    """Fold each index into a copy of the key; return keys (B,)."""
    return jax.vmap(jax.random.fold_in, (None, 0))(key, indices)


def map_examples(
    batch: dict[str, Any],
    change: Callable[..., tuple[jax.Array, Any]],
    *numbers: jax.Array,
) -> dict[str, Any]:
    """Map a function over the images and targets of a batch.

    Args:
      batch: Batch with `image` (B, H, W, C) and `target`.
      change: Function (*numbers, image, target) -> (image, target) of one example, with
        images (H, W, C).
      *numbers: Additional arrays (B, ...), such as PRNG keys.
    """
    images, targets = jax.vmap(change)(*numbers, batch["image"], batch["target"])
    return {**batch, "image": images, "target": targets}
