"""Small images as `data:` URLs."""

import base64
import io

import numpy as np
from PIL import Image

# Maximum height and width in pixels of thumbnails, and of images shown on a click.
SIDE, LARGE_SIDE = 112, 320
# Images with at most this height and width in pixels are shown enlarged.
TINY = 48
# Numbers of channels that are encoded without changes.
CHANNELS = (1, 3, 4)


def to_address(pixels: np.ndarray, side: int = SIDE) -> str:
    """Encode an image as a `data:` URL.

    Small and RGBA images are encoded as PNG, others as JPEG, which is smaller for
    photographs. In images with 2 or more than 4 channels, only the first is encoded.

    Args:
      pixels: Image, uint8 (H, W, C).
      side: Maximum height and width in pixels; larger images are downscaled.
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
