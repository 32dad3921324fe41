"""Normalization of images by channel mean and standard deviation."""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Normalization(NamedTuple):
    """Channel mean and standard deviation of pixels in 0..1, for normalization."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def pixels(self, images: jax.Array) -> jax.Array:
        """Denormalize images (B, H, W, C) to 0..1."""
        mean, std = (jnp.asarray(x, images.dtype) for x in self)
        return images * std + mean

    def normalized(self, pixels: jax.Array) -> jax.Array:
        """Normalize images in 0..1; inverse of `pixels`."""
        mean, std = (jnp.asarray(x, pixels.dtype) for x in self)
        return (pixels - mean) / std


# Identity normalization.
UNCHANGED = Normalization((0.0,), (1.0,))
