"""Maps drawn over the images that they explain."""

import functools
import os
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from PIL import Image, ImageDraw

from jaxtrain.data.image_files import FileNames
from jaxtrain.inference.found import common_folder
from jaxtrain.pages.font import fitted, font

# Pixels of the shorter side, at least.
SIDE = 224
# How much of the colour of the map there is where it is largest.
STRENGTH = 0.6
# In pixels.
CAPTION_HEIGHT, CAPTION_SIZE, CAPTION_MARGIN = 24, 14, 4


class Overlays:
    """Pictures in a folder, at the places of their images below the common folder."""

    def __init__(self, folder: Path, names: FileNames):
        self._folder, self._names = os.fsencode(folder), names
        self._common = common_folder(names)

    def write(
        self, index: int, pixels: np.ndarray, heat: np.ndarray, caption: str
    ) -> None:
        """Write the picture of an image.

        Args:
          index: of the image.
          pixels: as the model saw it, uint8 (H, W, C).
          heat: its map (rows, columns).
          caption: What the map explains, below the picture.

        Raises:
          OSError: it cannot be written.
        """
        image = os.path.abspath(self._names[index])
        path = os.path.join(self._folder, os.path.relpath(image, self._common))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        # Pillow's own 6 takes 11 ms, not 3, for files that are a sixth smaller.
        draw(pixels, heat, caption).save(os.fsdecode(path + b".png"), compress_level=1)


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
