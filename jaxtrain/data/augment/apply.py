"""Changes of each example of a batch, and of its target, by a key of its own."""

from collections.abc import Callable
from typing import Any

import jax


def make_keys(
    root_key: jax.Array,
    step: jax.Array,
    indices: jax.Array,
    repeat: jax.Array | None = None,
) -> jax.Array:
    """Return one key an example, (B,): a function of these arguments alone.

    Args:
      indices: Numbers of the examples, (B,).
      repeat: Which time an example is in the batch, (B,); None if each is in it once.
    """
    keys = fold_each(jax.random.fold_in(root_key, step), indices)
    return keys if repeat is None else jax.vmap(jax.random.fold_in)(keys, repeat)


def fold_each(key: jax.Array, indices: jax.Array) -> jax.Array:
    """Return one key an example, (B,), of `key` and its index."""
    return jax.vmap(jax.random.fold_in, (None, 0))(key, indices)


def change_each(
    batch: dict[str, Any],
    change: Callable[..., tuple[jax.Array, Any]],
    *numbers: jax.Array,
) -> dict[str, Any]:
    """Return a batch with each image and its target changed.

    Args:
      change: Function of what an example has of `numbers`, of its image (H, W, C) and
        of its target, which returns the last two.
      *numbers: Keys, or other arrays (B, ...).
    """
    images, targets = jax.vmap(change)(*numbers, batch["image"], batch["target"])
    return {**batch, "image": images, "target": targets}
