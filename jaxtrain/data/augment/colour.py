"""Colour augmentations in Pillow's arithmetic, on uint8 images (H, W, C).

Most augmentations apply a lookup table of 256 values per channel, (C, 256), or blend
two images.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.config import AugmentConfig

VALUES = np.arange(256, dtype=np.int32)
# All orders of brightness (0), contrast (1), saturation (2) and hue (3).
ORDERS = np.array(list(itertools.permutations(range(4))), np.int32)


def colour_jitter(
    key: jax.Array, image: jax.Array, config: AugmentConfig, fill: jax.Array
) -> jax.Array:
    """Jitter brightness, contrast, saturation and hue, in random order.

    As in torchvision's ColorJitter, for a config value x the factors of brightness,
    contrast and saturation are uniform in max(0, 1 - x)..1 + x, and the hue shift is
    uniform in -x..x of a full circle. The jitter is applied with probability
    `config.jitter_probability`.
    """
    order_key, factor_key, hue_key = jax.random.split(key, 3)
    order = jnp.asarray(ORDERS)[jax.random.randint(order_key, (), 0, 24, jnp.int32)]
    strengths = np.array(
        [config.brightness, config.contrast, config.saturation], np.float32
    )
    draws = jax.random.uniform(factor_key, (3,), jnp.float32)
    least = np.maximum(0, 1 - strengths)
    factors = least + (1 + strengths - least) * draws
    # The hue shift is not a blend: a factor of 1 makes its `blend` the identity.
    factors = jnp.append(factors, jnp.float32(1))
    hue = jax.random.uniform(hue_key, (), jnp.float32, -config.hue, config.hue)
    shift = (hue * 255).astype(jnp.int32) & 255

    def apply(image: jax.Array, kind: jax.Array) -> tuple[jax.Array, None]:
        dark = jnp.where(kind == 1, mean_grey(image), 0)
        other = jnp.where(kind == 2, to_grey(image), dark)
        changed = blend(other, image, factors[kind])
        if config.hue:
            shifted = shift_hue(image, shift)
            changed = jnp.where(kind == 3, shifted, changed)
        return changed, None

    # A scan compiles in a quarter of the time of an unrolled loop.
    changed = jax.lax.scan(apply, image, order)[0]
    if config.jitter_probability == 1:
        return changed
    chosen = bernoulli(jax.random.fold_in(key, 0), config.jitter_probability)
    return jnp.where(chosen, changed, image)


def grayscale(
    key: jax.Array, image: jax.Array, config: AugmentConfig, fill: jax.Array
) -> jax.Array:
    """Convert to luminance with probability `config.grayscale`."""
    return jnp.where(
        bernoulli(key, config.grayscale), to_grey(image).astype(image.dtype), image
    )


def bernoulli(key: jax.Array, probability: float) -> jax.Array:
    """Draw a Bernoulli sample, bool ()."""
    # The dtype is float32, so that JAX_ENABLE_X64 does not change the draw.
    return jax.random.bernoulli(key, np.float32(probability))


def to_grey(image: jax.Array) -> jax.Array:
    """Return the ITU-R 601 luminance, int32 (H, W, 1), rounded as in Pillow."""
    if image.shape[-1] == 1:
        return image.astype(jnp.int32)
    weights = jnp.array([19595, 38470, 7471], jnp.int32)
    return (jnp.sum(image * weights, -1, keepdims=True) + 0x8000) >> 16


def mean_grey(image: jax.Array) -> jax.Array:
    """Return the mean luminance, rounded, int32 ()."""
    count = image.shape[0] * image.shape[1]
    total = jnp.sum(to_grey(image).astype(jnp.uint32), dtype=jnp.uint32)
    return ((2 * total + count) // (2 * count)).astype(jnp.int32)


def blend(one: jax.Array, other: jax.Array, factor: jax.Array) -> jax.Array:
    """Return `one + factor * (other - one)`, clipped to uint8, as in Pillow."""
    one, other = jnp.asarray(one, jnp.int32), jnp.asarray(other, jnp.int32)
    mixed = one.astype(jnp.float32) + factor * (other - one).astype(jnp.float32)
    return jnp.clip(mixed, 0, 255).astype(jnp.uint8)


def smooth(image: jax.Array) -> jax.Array:
    """Apply Pillow's 3x3 filter SMOOTH (centre weight 5/13); borders are unchanged."""
    height, width, _ = image.shape
    wide = image.astype(jnp.int32)
    if height < 3 or width < 3:
        return wide
    rows = wide[:-2] + wide[1:-1] + wide[2:]
    nine = rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]
    inner = (2 * (nine + 4 * wide[1:-1, 1:-1]) + 13) // 26
    return wide.at[1:-1, 1:-1].set(inner)


def counts(image: jax.Array) -> jax.Array:
    """Return the histogram of each channel, int32 (C, 256)."""
    return jax.lax.platform_dependent(
        image, cpu=counts_by_adding, default=counts_by_comparing
    )


def counts_by_adding(image: jax.Array) -> jax.Array:
    """Compute the histograms by scatter-add, which is fast on CPU."""
    channels = image.shape[-1]
    pixels = image.reshape(-1, channels).astype(jnp.int32)
    places = pixels + 256 * jnp.arange(channels)
    zeros = jnp.zeros(channels * 256, jnp.int32)
    return zeros.at[places.reshape(-1)].add(1).reshape(channels, 256)


def counts_by_comparing(image: jax.Array) -> jax.Array:
    """Compute the histograms by comparisons, which is fast on GPU.

    On GPU, scatter-adds to few addresses are serialized, whereas XLA fuses comparisons
    and their sums without intermediate arrays.
    """
    pixels = image.reshape(-1, image.shape[-1]).astype(jnp.int32)
    return jnp.sum(pixels.T[:, None] == VALUES[None, :, None], -1, dtype=jnp.int32)


def look_up(image: jax.Array, table: jax.Array) -> jax.Array:
    """Apply lookup tables (C, 256) to an image, uint8 (H, W, C)."""
    places = image.astype(jnp.int32) + 256 * jnp.arange(image.shape[-1])
    return table.reshape(-1)[places].astype(jnp.uint8)


def autocontrast(histogram: jax.Array) -> jax.Array:
    """Return lookup tables (C, 256) that stretch each channel to 0..255.

    Args:
      histogram: Histogram of each channel, int32 (C, 256).
    """
    occurs = histogram > 0
    low = jnp.argmax(occurs, -1, keepdims=True)
    high = 255 - jnp.argmax(occurs[:, ::-1], -1, keepdims=True)
    stretched = (VALUES - low) * 255 // jnp.maximum(high - low, 1)
    return jnp.where(high > low, jnp.clip(stretched, 0, 255), VALUES)


def equalize(histogram: jax.Array) -> jax.Array:
    """Return lookup tables (C, 256) that equalize the histogram of each channel.

    Args:
      histogram: Histogram of each channel, int32 (C, 256).
    """
    occurs = histogram > 0
    last = 255 - jnp.argmax(occurs[:, ::-1], -1, keepdims=True)
    of_last = jnp.take_along_axis(histogram, last, -1)
    total = jnp.sum(histogram, -1, keepdims=True)
    step = (total - of_last) // 255
    before = jnp.cumsum(histogram, -1) - histogram
    even = (step // 2 + before) // jnp.maximum(step, 1)
    return jnp.where(step > 0, jnp.clip(even, 0, 255), VALUES)


def shift_hue(image: jax.Array, shift: jax.Array) -> jax.Array:
    """Shift the hue, in Pillow's 8-bit HSV.

    Args:
      image: Image, uint8 (H, W, C); grey images are unchanged.
      shift: Shift in 1/256 of a full circle, int32 (), 0 to 255.
    """
    if image.shape[-1] != 3:
        return image
    hue, saturation, value = _to_hsv(image)
    return _from_hsv((hue + shift) & 255, saturation, value)


def _to_hsv(image: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    most, least = jnp.max(image, -1), jnp.min(image, -1)
    spread = (most - least).astype(jnp.float32)
    divisor = jnp.maximum(spread, 1)
    red, green, blue = (
        (most - image[..., c]).astype(jnp.float32) / divisor for c in range(3)
    )
    hue = jnp.where(
        image[..., 0] == most,
        blue - green,
        jnp.where(image[..., 1] == most, 2 + red - blue, 4 + green - red),
    )
    turns = hue / 6 + 1
    hue = (turns - jnp.floor(turns)) * 255
    saturation = spread / jnp.maximum(most, 1).astype(jnp.float32) * 255
    grey = spread == 0
    return (
        jnp.where(grey, 0, hue).astype(jnp.int32),
        jnp.where(grey, 0, saturation).astype(jnp.int32),
        most.astype(jnp.int32),
    )


def _from_hsv(hue: jax.Array, saturation: jax.Array, value: jax.Array) -> jax.Array:
    """Convert HSV in 0..255, int32 (H, W) each, to RGB, uint8 (H, W, 3).

    A channel is darkest at the hue opposite to the channel's colour.
    """
    sixths = hue.astype(jnp.float32)[..., None] * 6 / 255
    # Red, green and blue are at 0, 2 and 4 sixths of the colour circle. `place` is 5 at
    # a channel's colour, and 2 at the opposite hue.
    place = sixths + jnp.array([5, 3, 1], jnp.float32)
    place = jnp.where(place >= 6, place - 6, place)
    darker = jnp.clip(jnp.minimum(place, 4 - place), 0, 1)
    pure = saturation.astype(jnp.float32)[..., None] / 255
    bright = value.astype(jnp.float32)[..., None]
    return jnp.floor(bright * (1 - pure * darker) + 0.5).astype(jnp.uint8)
