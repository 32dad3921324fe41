"""CSV cells that are safe in spreadsheets and terminals.

File names and labels are untrusted: a spreadsheet evaluates a cell that starts like a
formula, and a terminal interprets control characters. Cells are escaped as OWASP
advises (https://owasp.org/www-community/attacks/CSV_Injection), but without loss:
`from_cell` restores the text.
"""

import re
import unicodedata

# First characters of formulas; the last four are full-width forms. The apostrophe is
# included so that `from_cell` removes only apostrophes that `to_cell` has added.
_FORMULA = frozenset("=+-@\t\r\n'\uff1d\uff0b\uff0d\uff20")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
# Control characters that change the display order of the following text.
_BIDIRECTIONAL = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_CONTROLS = ("Cc", "Zl", "Zp", "Cs")


def to_cell(text: str) -> str:
    """Escape formulas and control characters.

    Control characters and backslashes become Python escapes: `\\x1b`, `\\n`, `\\\\`. An
    apostrophe is prepended to possible formulas, but not to numbers.
    """
    if not text.isprintable() or "\\" in text:
        escaped = "".join(map(_escape, text))
    else:
        escaped = text
    formula = text[:1] in _FORMULA and not _NUMBER.fullmatch(text)
    return f"'{escaped}" if formula else escaped


def from_cell(cell: str) -> str:
    """Undo `to_cell`."""
    text = cell.removeprefix("'")
    if "\\" not in text:
        return text
    return text.encode("latin-1", "backslashreplace").decode("unicode_escape")


def _escape(c: str) -> str:
    control = unicodedata.category(c) in _CONTROLS or c in _BIDIRECTIONAL
    return c.encode("unicode_escape").decode() if control or c == "\\" else c
