"""Small pictures, as text that a page holds."""

import base64
import io

import numpy as np
from PIL import Image

# Longest side in pixels, and of pictures that a click enlarges.
SIDE, LARGE_SIDE = 112, 320
# Longest side of an image that is shown larger than it is, in pixels.
TINY = 48
# Channels that a picture may have.
CHANNELS = (1, 3, 4)


def to_address(pixels: np.ndarray, side: int = SIDE) -> str:
    """Return an image, uint8 (H, W, C), as a data: address; of odd channels, the first.

    Small and sharp ones stay as they are; photographs take less room as JPEG.

    Args:
      pixels: Image, uint8 (H, W, C).
      side: Longest side in pixels; larger images are made smaller.
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
