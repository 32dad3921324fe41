"""Augmentation on the device, inside the step: each example by a key of its own.

One that moves pixels to other places says so (a row with `moves`, a function of the
user's own with the attribute `moves`): targets that have pixels then follow.

To add one: write its function, add its field to `AugmentConfig` and its row to
`AUGMENTATIONS`.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain import own
from jaxtrain.config import AugmentConfig
from jaxtrain.dtypes import wide
from jaxtrain.errors import UserError
from jaxtrain.registry import call_own

# (key, image (H, W, C), the field's value, mean colour (C,)) -> image (H, W, C).
Augmentation = Callable[[jax.Array, jax.Array, Any, jax.Array], jax.Array]
# (target of an example, what moves the pixels of its image) -> target.
Follow = Callable[[Any, Callable[[jax.Array], jax.Array]], Any]


class Row(NamedTuple):
    """A row of the table: the function, and whether it moves pixels to other places."""

    function: Augmentation
    moves: bool


def stay(target: Any, move: Callable[[jax.Array], jax.Array]) -> Any:
    """Leave a target as it is, wherever the pixels of its image go."""
    del move
    return target


def random_crop(
    key: jax.Array, image: jax.Array, padding: int, fill: jax.Array
) -> jax.Array:
    """Pad with black, then crop back at a random place (He et al. 2016, CIFAR-10)."""
    del fill
    # A padded copy and a slice of it: on CPU 0.1 ms for 128 images of 32x32x3, where
    # two index gathers take 0.3 ms and selecting among static shifts 3.4 ms.
    padded = jnp.pad(image, ((padding, padding), (padding, padding), (0, 0)))
    top, left = jax.random.randint(key, (2,), 0, 2 * padding + 1, jnp.int32)
    return jax.lax.dynamic_slice(padded, (top, left, jnp.int32(0)), image.shape)


def horizontal_flip(
    key: jax.Array, image: jax.Array, enabled: bool, fill: jax.Array
) -> jax.Array:
    """Mirror left and right with probability one half."""
    del enabled, fill
    # The dtype is that of the draw, which JAX_ENABLE_X64 is not to change.
    return jnp.where(jax.random.bernoulli(key, np.float32(0.5)), image[:, ::-1], image)


def cutout(key: jax.Array, image: jax.Array, size: int, fill: jax.Array) -> jax.Array:
    """Paint a square in the mean colour (DeVries & Taylor 2017).

    Its centre is any pixel with the same probability; what of the square lies outside
    of the image is cut off.
    """
    height, width, _ = image.shape
    bounds = jnp.array([height, width], jnp.int32)
    centre = jax.random.randint(key, (2,), 0, bounds, jnp.int32)
    top, left = centre - size // 2
    row, column = jnp.arange(height)[:, None, None], jnp.arange(width)[None, :, None]
    inside = (row >= top) & (row < top + size) & (column >= left)
    return jnp.where(inside & (column < left + size), fill[None, None], image)


# Config field -> function, applied in this order. The number of a row is part of its
# key: add new rows at the end.
AUGMENTATIONS: dict[str, Row] = {
    "crop_padding": Row(random_crop, moves=True),
    "horizontal_flip": Row(horizontal_flip, moves=True),
    "cutout_size": Row(cutout, moves=False),
}


# The number of the first of the user's own, far behind those of the table.
FIRST_OWN = 1000


def make_keys(
    root_key: jax.Array,
    step: jax.Array,
    indices: jax.Array,
    repeat: jax.Array | None = None,
) -> jax.Array:
    """Return one key an example, (B,): a function of these arguments alone.

    Args:
      root_key: of augmentation.
      step: number of the step.
      indices: of the examples, (B,).
      repeat: which time an example is in the batch, (B,); None: the only one.
    """
    step_key = jax.random.fold_in(root_key, step)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(step_key, indices)
    return keys if repeat is None else jax.vmap(jax.random.fold_in)(keys, repeat)


def augment(
    batch: dict[str, Any],
    keys: jax.Array,
    config: AugmentConfig,
    fill: jax.Array,
    follow: Follow = stay,
) -> dict[str, Any]:
    """Apply the augmentations that the config turns on.

    Args:
      batch: its `image` is uint8 (B, H, W, C); the `target` has any arrays (B, ...).
      keys: one an example, (B,).
      config: which augmentations, and how strong.
      fill: the mean colour in 0..255, (C,).
      follow: how a target goes along where pixels move.

    Returns:
      The batch with other images and targets of the same shapes.
    """
    colour = jnp.round(fill).astype(batch["image"].dtype)
    for number, (field, row) in enumerate(AUGMENTATIONS.items()):
        value = getattr(config, field)
        if value:
            goes_along = follow if row.moves else stay
            batch = _change(
                batch, keys, number, row.function, (value, colour), goes_along
            )
    for number, name in enumerate(config.own, start=FIRST_OWN):
        function = own.load("data.augment.own", name)
        checked = functools.partial(call_own, "data.augment.own", name, function)
        goes_along = follow if getattr(function, "moves", False) else stay
        changed = _change(batch, keys, number, checked, (colour,), goes_along)
        _check_own(name, batch["image"], changed["image"])
        batch = changed
    return batch


def _change(
    batch: dict[str, Any],
    keys: jax.Array,
    number: int,
    function: Callable[..., jax.Array],
    arguments: tuple[Any, ...],
    follow: Follow,
) -> dict[str, Any]:
    """Call `function(key, image, *arguments)` for each image, by its own key.

    Args:
      batch: the images and targets.
      keys: one an example, (B,).
      number: of the augmentation, part of its keys.
      function: the augmentation.
      arguments: the same for each image.
      follow: how the targets go along.
    """

    def one(key: jax.Array, image: jax.Array, target: Any) -> tuple[jax.Array, Any]:
        def move(pixels: jax.Array) -> jax.Array:
            return function(key, pixels, *arguments)

        return move(image), follow(target, move)

    own_keys = jax.vmap(functools.partial(jax.random.fold_in, data=number))(keys)
    images, targets = jax.vmap(one)(own_keys, batch["image"], batch["target"])
    return {**batch, "image": images, "target": targets}


def check_own(config: AugmentConfig, image_shape: tuple[int, int, int]) -> None:
    """Try the user's own augmentations on the shape of an image (H, W, C).

    Raises:
      UserError: one cannot be found, or does not keep shape and dtype.
    """
    if config.own:
        image = jax.ShapeDtypeStruct((1, *image_shape), np.uint8)
        colour = jax.ShapeDtypeStruct((image_shape[-1],), np.float32)
        keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 1))
        batch = {"image": image, "target": {}}
        only = AugmentConfig(own=config.own)
        jax.eval_shape(lambda b, k, c: augment(b, k, only, c), batch, keys, colour)


def _check_own(name: str, before: jax.Array, after: Any) -> None:
    """Raise UserError if an augmentation of the user's own changes shape or dtype."""
    found = getattr(after, "shape", None), getattr(after, "dtype", None)
    if found != (before.shape, before.dtype):
        raise UserError(
            f"data.augment.own = {name!r} made {found[1]}{found[0] and found[0][1:]} "
            f"of an image {before.dtype}{before.shape[1:]}: it must keep both"
        )


def normalize(
    images: jax.Array, mean: tuple[float, ...], std: tuple[float, ...], dtype: Any
) -> jax.Array:
    """Return (images / 255 - mean) / std, as one multiply-add in at least float32.

    Args:
      images: uint8 (..., C).
      mean: of each channel, in 0..1.
      std: of each channel, in 0..1.
      dtype: of the result.
    """
    channel = (1,) * (images.ndim - 1) + (-1,)
    scale = jnp.asarray(1 / (255 * np.array(std)), wide(dtype)).reshape(channel)
    offset = jnp.asarray(-np.array(mean) / np.array(std), wide(dtype)).reshape(channel)
    return (images.astype(wide(dtype)) * scale + offset).astype(dtype)
