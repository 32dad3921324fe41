"""Text of data and users, and numbers, as a page shows them."""

import math
import re
from typing import Any

from markupsafe import Markup, escape

from jaxtrain.console import printable


def text(value: object) -> Markup:
    """Return anything as text that a browser shows and does not obey.

    Args:
      value: Plain text or a number; markup of our own making stays as it is.
    """
    return value if isinstance(value, Markup) else escape(printable(str(value)))


def breakable(value: object) -> Markup:
    """Return a name, plain text, whose lines break after its signs, not in a word."""
    pieces = re.split(r"(?<=[/_.:-])(?=[^/_.:-])", str(value))
    return Markup("<wbr>").join(map(text, pieces))


def shown(value: Any) -> str:
    """Return a number, or anything else, in few letters."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def share(value: Any) -> str:
    """Return a part of one in percent."""
    return "-" if not isinstance(value, int | float) else f"{100 * value:.1f}%"


def duration(seconds: Any) -> str:
    """Return a time in the units that fit it."""
    if not isinstance(seconds, int | float) or not math.isfinite(seconds):
        return "-"
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
