"""What changes each example of a batch by a key of its own, and its target with it."""

from collections.abc import Callable
from typing import Any

import jax

from jaxtrain.data.augment.geometry import Geometry

# (target of an example, where its image is taken) -> target.
Follow = Callable[[Any, Geometry], Any]
# (key, (H, W) of the image) -> where it is taken.
MakeGeometry = Callable[[jax.Array, tuple[int, int]], Geometry]
# (key, image (H, W, C)) -> image (H, W, C).
Change = Callable[[jax.Array, jax.Array], jax.Array]


def stay(target: Any, geometry: Geometry) -> Any:
    """Leave a target as it is, wherever its image goes."""
    del geometry
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
    make_geometry: MakeGeometry | None,
    paint: Change | None,
    follow: Follow,
) -> dict[str, Any]:
    """Augment each image by its own key; its target follows.

    Args:
      batch: Batch of images and targets.
      keys: One key an example, (B,).
      number: Number of the augmentation, which is part of its keys.
      make_geometry: Function that says where it takes an image; None if pixels stay.
      paint: Augmentation of one image; None if its geometry is all that it does.
      follow: How targets follow the image.
    """

    def one(key: jax.Array, image: jax.Array, target: Any) -> tuple[jax.Array, Any]:
        key = jax.random.fold_in(key, number)
        if make_geometry is not None:
            height, width, _ = image.shape
            geometry = make_geometry(key, (height, width))
            target = follow(target, geometry)
            if paint is None:
                return geometry.pixels(image), target
        assert paint is not None
        return paint(key, image), target

    images, targets = jax.vmap(one)(keys, batch["image"], batch["target"])
    return {**batch, "image": images, "target": targets}
