"""Font with glyphs for several scripts, for text in images."""

import functools
import importlib.util
from pathlib import Path

from PIL import ImageFont

from jaxtrain.console import printable

# Pillow's default font has only English letters. DejaVu Sans, which is part of
# matplotlib, has Latin, Greek, Cyrillic, Armenian, Georgian, Arabic and Hebrew.
FILE = Path("mpl-data", "fonts", "ttf", "DejaVuSans.ttf")
SIZE = 11


@functools.cache
def font(size: int = SIZE) -> ImageFont.FreeTypeFont:
    """Return the font at a size in pixels."""
    # Importing matplotlib would take half a second; `find_spec` does not import it.
    spec = importlib.util.find_spec("matplotlib")
    assert spec is not None and spec.origin is not None
    return ImageFont.truetype(Path(spec.origin).parent / FILE, size)


def fitted(text: str, width: int, size: int = SIZE) -> str:
    """Fit a text into one line of at most `width` pixels by truncating it."""
    text = printable(text).replace("\n", "\\n")
    if font(size).getlength(text) <= width:
        return text
    while text and font(size).getlength(text + "…") > width:
        text = text[:-1]
    return text + "…"
