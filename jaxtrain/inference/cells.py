"""Texts as cells of a CSV file, which spreadsheets and terminals show.

Names of files and labels may come from anybody. A spreadsheet computes a cell that
begins like a formula, and a terminal obeys control characters. The rules are OWASP's
(https://owasp.org/www-community/attacks/CSV_Injection), and nothing is lost:
`from_cell` returns the text.
"""

import re
import unicodedata

# What a spreadsheet may take for the beginning of a formula; the last four are the
# full-width forms. An apostrophe, so that one that was there is not taken for ours.
_FORMULA = frozenset("=+-@\t\r\n'\uff1d\uff0b\uff0d\uff20")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
# They turn round the order in which what follows is shown.
_BIDIRECTIONAL = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_CONTROLS = ("Cc", "Zl", "Zp", "Cs")


def to_cell(text: str) -> str:
    """Return a text without formulas and control characters.

    Control characters and backslashes become escapes, as Python writes them: `\\x1b`,
    `\\n`, `\\\\`. An apostrophe comes before what may be a formula, but not before a
    number.
    """
    if not text.isprintable() or "\\" in text:
        escaped = "".join(map(_escape, text))
    else:
        escaped = text
    formula = text[:1] in _FORMULA and not _NUMBER.fullmatch(text)
    return f"'{escaped}" if formula else escaped


def from_cell(cell: str) -> str:
    """Return the text that `to_cell` made a cell of."""
    text = cell.removeprefix("'")
    if "\\" not in text:
        return text
    return text.encode("latin-1", "backslashreplace").decode("unicode_escape")


def _escape(c: str) -> str:
    control = unicodedata.category(c) in _CONTROLS or c in _BIDIRECTIONAL
    return c.encode("unicode_escape").decode() if control or c == "\\" else c
