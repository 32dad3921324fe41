"""Maps drawn over the images that they explain."""

import functools

import numpy as np
from matplotlib import colormaps
from PIL import Image, ImageDraw

from jaxtrain.pages.font import fitted, font

# Pixels of the shorter side, at least.
SIDE = 224
# How much of the colour of the map there is where it is largest.
STRENGTH = 0.6
# In pixels.
CAPTION_HEIGHT, CAPTION_SIZE, CAPTION_MARGIN = 24, 14, 4


def draw(pixels: np.ndarray, heat: np.ndarray, caption: str = "") -> Image.Image:
    """Colour an image by a map: as it is where the map is 0, red where it is largest.

    Args:
      pixels: uint8 (H, W, C).
      heat: (rows, columns), 0 or more.
      caption: Below the picture, in one line; empty: there is none.
    """
    picture = Image.fromarray(np.broadcast_to(pixels[..., :3], (*pixels.shape[:2], 3)))
    factor = max(1, -(-SIDE // min(picture.size)))
    size = picture.width * factor, picture.height * factor
    largest = float(heat.max())
    part = np.asarray(heat / largest if largest > 0 else heat, np.float32)
    smooth = Image.fromarray(part).resize(size, Image.Resampling.BILINEAR)
    part = np.asarray(smooth)[..., None]
    colours = _colours()[(255 * part[..., 0]).astype(np.uint8)]
    image = np.asarray(picture.resize(size, Image.Resampling.NEAREST), np.float32)
    coloured = (image + STRENGTH * part * (colours - image)).astype("u1")
    return _with_caption(Image.fromarray(coloured), caption)


def _with_caption(picture: Image.Image, caption: str) -> Image.Image:
    if not caption:
        return picture
    width, height = picture.size
    whole = Image.new("RGB", (width, height + CAPTION_HEIGHT), "white")
    whole.paste(picture)
    words = fitted(caption, width - 2 * CAPTION_MARGIN, CAPTION_SIZE)
    place = CAPTION_MARGIN, height + CAPTION_MARGIN
    ImageDraw.Draw(whole).text(place, words, "black", font(CAPTION_SIZE))
    return whole


@functools.cache
def _colours() -> np.ndarray:
    """Return 256 colours, blue to red, (256, 3)."""
    return 255 * np.asarray(colormaps["turbo"](np.arange(256))[:, :3], np.float32)
