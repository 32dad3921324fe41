"""What changes each example of a batch by a key of its own, and its target with it."""

import functools
from collections.abc import Callable
from typing import Any

import jax

# (target of an example, what moves the pixels of its image) -> target.
Follow = Callable[[Any, Callable[[jax.Array], jax.Array]], Any]
# (key, image (H, W, C)) -> image (H, W, C).
Change = Callable[[jax.Array, jax.Array], jax.Array]


def stay(target: Any, move: Callable[[jax.Array], jax.Array]) -> Any:
    """Leave a target as it is, wherever the pixels of its image go."""
    del move
    return target


def make_keys(
    root_key: jax.Array,
    step: jax.Array,
    indices: jax.Array,
    repeat: jax.Array | None = None,
) -> jax.Array:
    """Return one key an example, (B,): a function of these arguments alone.

    Args:
      root_key: Root key of augmentation.
      step: Number of the step.
      indices: Numbers of the examples, (B,).
      repeat: Which time an example is in the batch, (B,); None if each is in it once.
    """
    keys = fold_each(jax.random.fold_in(root_key, step), indices)
    return keys if repeat is None else jax.vmap(jax.random.fold_in)(keys, repeat)


def fold_each(key: jax.Array, indices: jax.Array) -> jax.Array:
    """Return one key an example, (B,), of `key` and its index."""
    return jax.vmap(jax.random.fold_in, (None, 0))(key, indices)


def change(
    batch: dict[str, Any],
    keys: jax.Array,
    number: int,
    function: Change,
    move: Change | None,
    follow: Follow,
) -> dict[str, Any]:
    """Call `function(key, image)` for each image, by its own key.

    Args:
      batch: Batch of images and targets.
      keys: One key an example, (B,).
      number: Number of the augmentation, which is part of its keys.
      function: Augmentation of one image.
      move: Where it takes pixels from, with the same key; None if they stay.
      follow: How targets follow the pixels.
    """

    def one(key: jax.Array, image: jax.Array, target: Any) -> tuple[jax.Array, Any]:
        key = jax.random.fold_in(key, number)
        if move is not None:
            target = follow(target, functools.partial(move, key))
        return function(key, image), target

    images, targets = jax.vmap(one)(keys, batch["image"], batch["target"])
    return {**batch, "image": images, "target": targets}
