"""From pixel values to what the model sees."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.dtypes import wide


def normalize(
    images: jax.Array, mean: tuple[float, ...], std: tuple[float, ...], dtype: Any
) -> jax.Array:
    """Return (images / 255 - mean) / std, as one multiply-add in at least float32.

    Args:
      images: in 0..255, (..., C), of any dtype.
      mean: of each channel, in 0..1.
      std: of each channel, in 0..1.
      dtype: of the result.
    """
    channel = (1,) * (images.ndim - 1) + (-1,)
    scale = jnp.asarray(1 / (255 * np.array(std)), wide(dtype)).reshape(channel)
    offset = jnp.asarray(-np.array(mean) / np.array(std), wide(dtype)).reshape(channel)
    return (images.astype(wide(dtype)) * scale + offset).astype(dtype)
