"""Gaussian blur with a random standard deviation."""

import jax
import jax.numpy as jnp

from jaxtrain.config import AugmentConfig
from jaxtrain.data.augment.colour import bernoulli

# Kernel size relative to the height or width of the image (Chen et al. 2020,
# arXiv:2002.05709).
KERNEL = 0.1


def blur(
    key: jax.Array, image: jax.Array, config: AugmentConfig, fill: jax.Array
) -> jax.Array:
    """Apply Gaussian blur with probability `config.blur`.

    The standard deviation in pixels is uniform in the range `config.blur_sigma`.
    """
    whether_key, sigma_key = jax.random.split(key)
    least, most = config.blur_sigma
    sigma = jax.random.uniform(sigma_key, (), jnp.float32, least, most)
    blurred = jnp.round(gaussian(image, sigma)).astype(image.dtype)
    return jnp.where(bernoulli(whether_key, config.blur), blurred, image)


def gaussian(image: jax.Array, sigma: jax.Array) -> jax.Array:
    """Blur an image (H, W, C) with reflected borders; return float32.

    Args:
      image: Image of any dtype.
      sigma: Standard deviation in pixels, a scalar ().
    """
    blurred = image.astype(jnp.float32)
    for dim, size in enumerate(image.shape[:2]):
        blurred = _along(blurred, sigma, dim, min(radius(size), size - 1))
    return blurred


def radius(size: int) -> int:
    """Return the kernel radius in pixels, at least 1, for an image height or width."""
    return max(1, round((KERNEL * size - 1) / 2))


def _along(x: jax.Array, sigma: jax.Array, dim: int, reach: int) -> jax.Array:
    offsets = range(-reach, reach + 1)
    weights = jnp.exp(-0.5 * jnp.square(jnp.array(offsets, jnp.float32) / sigma))
    weights /= weights.sum()
    padding = [(reach, reach) if i == dim else (0, 0) for i in range(x.ndim)]
    padded, size = jnp.pad(x, padding, mode="reflect"), x.shape[dim]
    parts = (
        jax.lax.slice_in_dim(padded, i, i + size, axis=dim) for i in range(len(offsets))
    )
    return sum(
        (w * part for w, part in zip(weights, parts, strict=True)), jnp.zeros_like(x)
    )
