"""Small pictures of examples, as text that a page holds."""

import base64
import contextlib
import io
import warnings
from collections.abc import Iterable

import numpy as np
from PIL import Image

from jaxtrain.data import files
from jaxtrain.data.doctor.look import Rules
from jaxtrain.data.doctor.scan import Scan
from jaxtrain.data.files import StoredFile, UnreadableError
from jaxtrain.data.stores import Store

# Longest side in pixels.
SIDE = 112


def draw(store: Store, scan: Scan, rules: Rules, rows: Iterable[int]) -> dict[int, str]:
    """Return row -> a picture as a data: address; what cannot be read has none."""
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for row in rows:
            if row not in scan.unreadable:
                (stored,), _ = store.read(scan.index[row : row + 1])
                # The file may be another one by now.
                with contextlib.suppress(UnreadableError):
                    found[row] = _draw(stored, rules)
    return found


def _draw(stored: StoredFile | np.ndarray, rules: Rules) -> str:
    if isinstance(stored, StoredFile):
        pixels = files.open_file(stored.data, rules.max_pixels).decode(rules.channels)
    else:
        pixels = stored
    if pixels.shape[-1] not in files.MODES:
        pixels = pixels[..., :1]
    picture = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    # Small and sharp ones stay as they are; photographs take less room as JPEG.
    small = max(picture.size) <= SIDE
    picture.thumbnail((SIDE, SIDE))
    buffer = io.BytesIO()
    if small or picture.mode == "RGBA":
        picture.save(buffer, "PNG")
        kind = "png"
    else:
        picture.save(buffer, "JPEG", quality=80)
        kind = "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"
