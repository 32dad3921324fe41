"""Small images as data: URLs."""

import base64
import io

import numpy as np
from PIL import Image

# Maximum side in pixels of thumbnails, and of images enlarged by a click.
SIDE, LARGE_SIDE = 112, 320
# Maximum side in pixels of images that are shown enlarged.
TINY = 48
# Supported numbers of channels.
CHANNELS = (1, 3, 4)


def to_address(pixels: np.ndarray, side: int = SIDE) -> str:
    """Encode an image as a data: URL.

    Small images and RGBA are PNG; others are JPEG, which is smaller for photographs.
    Images with 2 or more than 4 channels show only the first channel.

    Args:
      pixels: Image, uint8 (H, W, C).
      side: Maximum side in pixels; larger images are downscaled.
    """
    if pixels.shape[-1] not in CHANNELS:
        pixels = pixels[..., :1]
    picture = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    small = max(picture.size) <= SIDE
    picture.thumbnail((side, side))
    buffer = io.BytesIO()
    if small or picture.mode == "RGBA":
        picture.save(buffer, "PNG")
        kind = "png"
    else:
        picture.save(buffer, "JPEG", quality=80)
        kind = "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"
