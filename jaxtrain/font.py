"""The letters of pictures: a font that has those of most names of classes."""

import functools
import importlib.util
from pathlib import Path

from PIL import ImageFont

from jaxtrain.console import printable

# Pillow's own font has the letters of English alone. Matplotlib brings this one, which
# has those of Latin, Greek, Cyrillic, Armenian, Georgian, Arabic and Hebrew.
FILE = Path("mpl-data", "fonts", "ttf", "DejaVuSans.ttf")
SIZE = 11


@functools.cache
def font(size: int = SIZE) -> ImageFont.FreeTypeFont:
    """Return the font, in a size in pixels."""
    # Importing matplotlib for its path would take half a second.
    found = importlib.util.find_spec("matplotlib")
    assert found is not None and found.origin is not None
    return ImageFont.truetype(Path(found.origin).parent / FILE, size)


def fitted(text: str, width: int, size: int = SIZE) -> str:
    """Return a text in one line that is at most so many pixels wide."""
    text = printable(text).replace("\n", "\\n")
    if font(size).getlength(text) <= width:
        return text
    while text and font(size).getlength(text + "…") > width:
        text = text[:-1]
    return text + "…"
