"""Text of data and users, such as names of files and classes, as a page shows it."""

import re

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
