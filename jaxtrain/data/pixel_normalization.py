"""Normalisation of pixels by the mean and standard deviation of each channel."""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Normalization(NamedTuple):
    """The statistics that images are normalised with, of each channel, in 0..1."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def pixels(self, images: jax.Array) -> jax.Array:
        """Return images (B, H, W, C) in 0..1 for normalised ones."""
        mean, std = (jnp.asarray(x, images.dtype) for x in self)
        return images * std + mean

    def normalized(self, pixels: jax.Array) -> jax.Array:
        """Return normalised images for those in 0..1, the inverse of `pixels`."""
        mean, std = (jnp.asarray(x, pixels.dtype) for x in self)
        return (pixels - mean) / std


# Of images that were not normalised.
UNCHANGED = Normalization((0.0,), (1.0,))
