"""Simple augmentations: crops, flips, rotation, cutout and erasing."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain import keys
from jaxtrain.config import AugmentConfig
from jaxtrain.data.augment import affine
from jaxtrain.data.augment.apply import fold_each, map_examples
from jaxtrain.data.augment.geometry import Affine, Flip, Geometry, PaddedCrop
from jaxtrain.data.target_changes import Follow

# Height and width of an image, in pixels.
Shape = tuple[int, int]
ERASING_TRIES = 10
# Random erasing: range of the rectangle's area relative to the image, and range of its
# aspect ratio (height / width).
ERASING_SCALE, ERASING_RATIO = (0.02, 0.33), (0.3, 3.3)


def random_crop(key: jax.Array, shape: Shape, config: AugmentConfig) -> Geometry:
    """Draw a random crop of the zero-padded image (He et al. 2016, CIFAR-10)."""
    padding = config.crop_padding
    top, left = jax.random.randint(key, (2,), 0, 2 * padding + 1, jnp.int32)
    return PaddedCrop(padding, top, left)


def vertical_flip(key: jax.Array, shape: Shape, config: AugmentConfig) -> Geometry:
    """Draw a vertical flip, with probability 0.5."""
    return _flip(key, shape, 0)


def horizontal_flip(key: jax.Array, shape: Shape, config: AugmentConfig) -> Geometry:
    """Draw a horizontal flip, with probability 0.5."""
    return _flip(key, shape, 1)


def _flip(key: jax.Array, shape: Shape, dim: int) -> Geometry:
    # The dtype is float32, so that JAX_ENABLE_X64 does not change the draw.
    return Flip(jax.random.bernoulli(key, np.float32(0.5)), shape, dim)


def rotation(key: jax.Array, shape: Shape, config: AugmentConfig) -> Geometry:
    """Draw a rotation, uniform in -`config.rotation`..`config.rotation` degrees.

    Corners of the result that are outside the image are black.
    """
    return Affine(affine.random_rotation(key, config.rotation, *shape))


def alternating_flip(
    batch: dict[str, Any], root: jax.Array, follow: Follow
) -> dict[str, Any]:
    """Flip each example horizontally in every second epoch.

    A random half of the examples is flipped in the first epoch. Independent flips would
    repeat the previous orientation of half of the examples (Jordan 2024,
    arXiv:2404.00498, section 3.6). With repeated examples, every second copy in a batch
    is flipped.

    Args:
      batch: Batch with `epoch`, and `repeat` if examples are repeated, int32 (B,).
      root: Root key of the run, which selects the half to flip in the first epoch.
      follow: Function (target, `Geometry`) -> target, which applies the flip of an
        image to its target.
    """

    def one(
        key: jax.Array, turn: jax.Array, image: jax.Array, target: Any
    ) -> tuple[jax.Array, Any]:
        first = jax.random.bernoulli(key, np.float32(0.5))
        height, width, _ = image.shape
        moved = Flip(first ^ (turn % 2 == 1), (height, width), dim=1)
        return moved.pixels(image), follow(target, moved)

    each = fold_each(keys.stream(root, keys.EXAMPLE), batch["index"])
    turn = batch["epoch"] + batch.get("repeat", 0)
    return map_examples(batch, one, each, turn)


def cutout(
    key: jax.Array, image: jax.Array, config: AugmentConfig, fill: jax.Array
) -> jax.Array:
    """Fill a square with the mean colour (DeVries & Taylor 2017).

    The centre is uniform over the pixels, and the square is clipped to the image.
    """
    height, width, _ = image.shape
    size = config.cutout_size
    bounds = jnp.array([height, width], jnp.int32)
    centre = jax.random.randint(key, (2,), 0, bounds, jnp.int32)
    top, left = centre - size // 2
    inside = _rectangle(image, top, left, size, size)
    return jnp.where(inside, fill[None, None], image)


def erasing(
    key: jax.Array, image: jax.Array, config: AugmentConfig, fill: jax.Array
) -> jax.Array:
    """Erase a random rectangle (Zhong et al. 2017, arXiv:1708.04896).

    Ten rectangles are drawn, and the first that fits into the image is erased. If none
    fits, the image is unchanged, as in torchvision.
    """
    height, width, _ = image.shape
    shape_key, noise_key = jax.random.split(key)
    draws = jax.random.uniform(shape_key, (2 * ERASING_TRIES + 3,), jnp.float32)
    least, most = ERASING_SCALE
    area = height * width * (least + (most - least) * draws[3::2])
    ratio = jnp.log(jnp.array(ERASING_RATIO, jnp.float32))
    aspect = jnp.exp(ratio[0] + (ratio[1] - ratio[0]) * draws[4::2])
    h, w = jnp.round(jnp.sqrt(area * aspect)), jnp.round(jnp.sqrt(area / aspect))
    fits = (h < height) & (w < width)
    first = jnp.argmax(fits)
    h, w = h[first], w[first]
    top = jnp.floor(draws[1] * (height - h + 1))
    left = jnp.floor(draws[2] * (width - w + 1))
    inside = _rectangle(image, top, left, h, w)
    paint = fill[None, None]
    if config.erasing_value == "noise":
        paint = jax.random.bits(noise_key, image.shape, jnp.uint8)
    chosen = (draws[0] < config.erasing) & jnp.any(fits)
    return jnp.where(inside & chosen, paint, image)


def _rectangle(image: jax.Array, top: Any, left: Any, height: Any, width: Any):
    row = jnp.arange(image.shape[0])[:, None, None]
    column = jnp.arange(image.shape[1])[None, :, None]
    inside = (row >= top) & (row < top + height)
    return inside & (column >= left) & (column < left + width)
