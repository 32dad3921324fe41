"""Formatting of untrusted text and numbers for pages."""

import math
import re
from typing import Any

from markupsafe import Markup, escape

from jaxtrain.console import printable


def text(value: object) -> Markup:
    """Escape a value for HTML.

    Args:
      value: Plain text or a number; `Markup` is returned unchanged.
    """
    return value if isinstance(value, Markup) else escape(printable(str(value)))


def breakable(value: object) -> Markup:
    """Escape a name for HTML, and allow line breaks after its punctuation."""
    pieces = re.split(r"(?<=[/_.:-])(?=[^/_.:-])", str(value))
    return Markup("<wbr>").join(map(text, pieces))


def shown(value: Any) -> str:
    """Format a value: thousands separators, and 4 significant digits for floats."""
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
    """Format a fraction as a percentage; "-" if it is not a number."""
    return "-" if not isinstance(value, int | float) else f"{100 * value:.1f}%"


def duration(seconds: Any) -> str:
    """Format a duration in seconds, such as "1.5 s", "3 min 20 s" or "2 h 5 min"."""
    if not isinstance(seconds, int | float) or not math.isfinite(seconds):
        return "-"
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
