"""Weather corruptions: snow, frost, fog and brightness."""

import numpy as np

from jaxtrain.plugins.robustness.corruptions.blur import along_line, zoom
from jaxtrain.plugins.robustness.corruptions.draws import Draws, each_image

# Range of the random angle of falling snow, in degrees.
FALL = (-135, -45)
# Weights of the RGB channels for conversion to greyscale (ITU-R 601).
GREY = np.array([0.299, 0.587, 0.114])
# Colour of the brightest frost pixels.
FROST = np.array([0.84, 0.92, 1.0])


@each_image
def snow(
    image: np.ndarray, level: tuple[float, ...], draw: np.random.Generator
) -> np.ndarray:
    """Lighten an image; add a snow layer and a copy of it rotated by 180 degrees."""
    mean, deviation, size, least, radius, sigma, kept = level
    layer = draw.normal(mean, deviation, (*image.shape[:2], 1))
    layer = zoom(layer[None], size)[0]
    layer = np.clip(np.where(layer < least, 0, layer), 0, 1)
    # The authors convert the layer to 8 bits for ImageMagick.
    layer = np.floor(255 * layer)
    flakes = np.rint(along_line(layer, radius, sigma, draw.uniform(*FALL))) / 255
    grey = image if image.shape[-1] == 1 else (image @ GREY)[..., None]
    whiter = np.maximum(image, grey * 1.5 + 0.5)
    return kept * image + (1 - kept) * whiter + flakes + np.flip(flakes, (0, 1))


@each_image
def frost(
    image: np.ndarray, level: tuple[float, float], draw: np.random.Generator
) -> np.ndarray:
    """Add synthetic frost.

    Two plasma fractals replace the authors' photographs of frosted panes: one is added
    as haze, and the ridges of the other, which branch like crystals, as ice.
    """
    kept, amount = level
    height, width, channels = image.shape
    colour = FROST if channels == 3 else np.ones(channels)
    ridges = 1 - np.abs(2 * plasma(draw, height, width, decay=1.8) - 1)
    ice = 0.3 * plasma(draw, height, width, decay=2.5) + 0.7 * ridges**4
    return kept * image + amount * ice[..., None] * colour


@each_image
def fog(
    image: np.ndarray, level: tuple[float, float], draw: np.random.Generator
) -> np.ndarray:
    """Add a plasma fractal, then rescale to preserve the image's maximum."""
    amount, decay = level
    height, width, _ = image.shape
    brightest = image.max()
    added = image + amount * plasma(draw, height, width, decay)[..., None]
    return added * brightest / np.maximum(brightest + amount, 1e-12)


def plasma(
    draw: np.random.Generator, height: int, width: int, decay: float
) -> np.ndarray:
    """Plasma fractal by the diamond-square algorithm, in 0..1, (H, W).

    The fractal is computed on a periodic square whose side is a power of two.

    Args:
      draw: Generator of random numbers.
      height: Height of the result in pixels.
      width: Width of the result in pixels.
      decay: Divisor of the roughness at each halving of the scale.
    """
    size = 1 << max(1, (max(height, width) - 1).bit_length())
    heights, step, rough = np.zeros((size, size)), size, 100.0
    while step >= 2:
        half = step // 2
        corners = heights[::step, ::step]
        pairs = corners + np.roll(corners, -1, 0)
        heights[half::step, half::step] = _between(
            pairs + np.roll(pairs, -1, 1), rough, draw
        )
        middles = heights[half::step, half::step]
        above = middles + np.roll(middles, 1, 0)
        beside = middles + np.roll(middles, 1, 1)
        right = above + corners + np.roll(corners, -1, 1)
        down = beside + corners + np.roll(corners, -1, 0)
        heights[::step, half::step] = _between(right, rough, draw)
        heights[half::step, ::step] = _between(down, rough, draw)
        step, rough = half, rough / decay
    heights -= heights.min()
    return (heights / heights.max())[:height, :width]


def _between(total: np.ndarray, rough: float, draw: np.random.Generator) -> np.ndarray:
    """Convert sums of four neighbours to their means, and add uniform noise."""
    return total / 4 + rough * draw.uniform(-rough, rough, total.shape)


def brightness(images: np.ndarray, amount: float, draws: Draws) -> np.ndarray:
    """Add `amount` to the HSV value (V); hue and saturation are unchanged."""
    value = images.max(-1, keepdims=True)
    brighter = np.clip(value + amount, 0, 1)
    scaled = images * (brighter / np.where(value > 0, value, 1))
    return np.where(value > 0, scaled, brighter)
