"""SpecAugment: time and frequency masks of spectrograms, filled with the mean.

The implementation follows sections 2 and 3 of Park et al. 2019 (arXiv:1904.08779), but
omits time warping, which had the smallest effect in the paper.
"""

import jax
import jax.numpy as jnp

from jaxtrain.config import AugmentConfig

# Maximum width of a mask, in frames and in mel bands.
TIME_MASK_FRAMES, FREQUENCY_MASK_BANDS = 10, 8


def time_masks(
    key: jax.Array, image: jax.Array, config: AugmentConfig, fill: jax.Array
) -> jax.Array:
    """Fill random ranges of frames (columns) with the mean."""
    inside = _bands(key, image.shape[1], config.time_masks, TIME_MASK_FRAMES)
    return jnp.where(inside[None, :, None], fill, image)


def frequency_masks(
    key: jax.Array, image: jax.Array, config: AugmentConfig, fill: jax.Array
) -> jax.Array:
    """Fill random ranges of mel bands (rows) with the mean."""
    inside = _bands(key, image.shape[0], config.frequency_masks, FREQUENCY_MASK_BANDS)
    return jnp.where(inside[:, None, None], fill, image)


def _bands(key: jax.Array, size: int, num: int, most: int) -> jax.Array:
    """Draw `num` random ranges of an axis; return their union as a mask, bool (size,).

    The width of a range is uniform in 0..`most`. Its start is uniform among all
    positions with the entire range inside the spectrogram.
    """
    most = min(most, size)
    widths_key, places_key = jax.random.split(key)
    width = jax.random.randint(widths_key, (num, 1), 0, most + 1, jnp.int32)
    start = jax.random.randint(places_key, (num, 1), 0, size - width + 1, jnp.int32)
    place = jnp.arange(size, dtype=jnp.int32)
    return jnp.any((place >= start) & (place < start + width), axis=0)
