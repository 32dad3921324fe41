"""SpecAugment: bands of frequency and of time of a spectrogram, set to its mean.

Park et al. 2019, arXiv:1904.08779, sections 2 and 3, without time warping, of which the
authors say that it helps least.
"""

import jax
import jax.numpy as jnp

from jaxtrain.config import AugmentConfig

# Most frames, and most bands of the mel scale, of one mask.
TIME_MASK_FRAMES, FREQUENCY_MASK_BANDS = 10, 8


def time_masks(
    key: jax.Array, image: jax.Array, config: AugmentConfig, fill: jax.Array
) -> jax.Array:
    """Paint columns, which are frames, in the mean colour."""
    inside = _bands(key, image.shape[1], config.time_masks, TIME_MASK_FRAMES)
    return jnp.where(inside[None, :, None], fill, image)


def frequency_masks(
    key: jax.Array, image: jax.Array, config: AugmentConfig, fill: jax.Array
) -> jax.Array:
    """Paint rows, which are bands of the mel scale, in the mean colour."""
    inside = _bands(key, image.shape[0], config.frequency_masks, FREQUENCY_MASK_BANDS)
    return jnp.where(inside[:, None, None], fill, image)


def _bands(key: jax.Array, size: int, num: int, most: int) -> jax.Array:
    """Return whether each place lies in one of some bands, bool (size,).

    The width of a band is any of 0 to `most` with the same probability, and its place
    any where it lies inside.
    """
    most = min(most, size)
    widths_key, places_key = jax.random.split(key)
    width = jax.random.randint(widths_key, (num, 1), 0, most + 1, jnp.int32)
    start = jax.random.randint(places_key, (num, 1), 0, size - width + 1, jnp.int32)
    place = jnp.arange(size, dtype=jnp.int32)
    return jnp.any((place >= start) & (place < start + width), axis=0)
