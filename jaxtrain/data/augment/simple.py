"""Augmentations of a few lines: crops, flips, turns, and squares painted over."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.config import AugmentConfig
from jaxtrain.data.augment import affine
from jaxtrain.data.augment.geometry import Affine, Flip, Geometry, PaddedCrop

# Height and width of an image.
Shape = tuple[int, int]
ERASING_TRIES = 10


def random_crop(key: jax.Array, shape: Shape, config: AugmentConfig) -> Geometry:
    """Pad with black, then crop back at a random place (He et al. 2016, CIFAR-10)."""
    del shape
    padding = config.crop_padding
    top, left = jax.random.randint(key, (2,), 0, 2 * padding + 1, jnp.int32)
    return PaddedCrop(padding, top, left)


def horizontal_flip(key: jax.Array, shape: Shape, config: AugmentConfig) -> Geometry:
    """Mirror left and right with probability one half."""
    del config
    # The dtype is that of the draw, which JAX_ENABLE_X64 is not to change.
    return Flip(jax.random.bernoulli(key, np.float32(0.5)), shape, dim=1)


def cutout(
    key: jax.Array, image: jax.Array, config: AugmentConfig, fill: jax.Array
) -> jax.Array:
    """Paint a square in the mean colour (DeVries & Taylor 2017).

    Its centre is any pixel with the same probability; what of the square lies outside
    of the image is cut off.
    """
    height, width, _ = image.shape
    size = config.cutout_size
    bounds = jnp.array([height, width], jnp.int32)
    centre = jax.random.randint(key, (2,), 0, bounds, jnp.int32)
    top, left = centre - size // 2
    row, column = jnp.arange(height)[:, None, None], jnp.arange(width)[None, :, None]
    inside = (row >= top) & (row < top + size) & (column >= left)
    return jnp.where(inside & (column < left + size), fill[None, None], image)


def vertical_flip(key: jax.Array, shape: Shape, config: AugmentConfig) -> Geometry:
    """Mirror top and bottom with probability one half."""
    del config
    return Flip(jax.random.bernoulli(key, np.float32(0.5)), shape, dim=0)


def rotation(key: jax.Array, shape: Shape, config: AugmentConfig) -> Geometry:
    """Turn by any angle up to the one given, either way; corners become black."""
    return Affine(affine.random_rotation(key, config.rotation, *shape))


def erasing(
    key: jax.Array, image: jax.Array, config: AugmentConfig, fill: jax.Array
) -> jax.Array:
    """Paint a random rectangle (Zhong et al. 2017, arXiv:1708.04896).

    Of ten draws of its area and aspect, height / width, the first counts that is
    smaller than the image; if none is, nothing is painted (as in torchvision).
    """
    height, width, _ = image.shape
    shape_key, noise_key = jax.random.split(key)
    draws = jax.random.uniform(shape_key, (2 * ERASING_TRIES + 3,), jnp.float32)
    least, most = config.erasing_scale
    area = height * width * (least + (most - least) * draws[3::2])
    ratio = jnp.log(jnp.array(config.erasing_ratio, jnp.float32))
    aspect = jnp.exp(ratio[0] + (ratio[1] - ratio[0]) * draws[4::2])
    h, w = jnp.round(jnp.sqrt(area * aspect)), jnp.round(jnp.sqrt(area / aspect))
    fits = (h < height) & (w < width)
    first = jnp.argmax(fits)
    h, w = h[first], w[first]
    top = jnp.floor(draws[1] * (height - h + 1))
    left = jnp.floor(draws[2] * (width - w + 1))
    row, column = jnp.arange(height)[:, None, None], jnp.arange(width)[None, :, None]
    inside = (row >= top) & (row < top + h) & (column >= left) & (column < left + w)
    paint = fill[None, None]
    if config.erasing_value == "noise":
        paint = jax.random.bits(noise_key, image.shape, jnp.uint8)
    chosen = (draws[0] < config.erasing) & jnp.any(fits)
    return jnp.where(inside & chosen, paint, image)
