"""What every page is made of.

What comes from data or from a user, such as names of files and classes, goes through
`text`; a page has no script, and its policy forbids any.
"""

import html
import re
from collections.abc import Iterable, Mapping, Sequence

from jaxtrain.console import printable
from jaxtrain.pages.style import STYLE

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def render(title: str, body: Iterable[str]) -> bytes:
    """Return a whole page.

    Args:
      title: Title, as plain text.
      body: Parts of the page, as HTML.
    """
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n"
        f"<style>{STYLE}</style></head>\n<body><main>\n"
        + "\n".join(part for part in body if part)
        + "\n</main></body></html>\n"
    )
    return page.encode()


def text(value: object) -> str:
    """Return anything as text that a browser shows and does not obey."""
    return html.escape(printable(str(value)))


def breakable(value: object) -> str:
    """Return a name, plain text, whose lines break after its signs, not in a word."""
    return "<wbr>".join(map(text, re.split(r"(?<=[/_.:-])(?=[^/_.:-])", str(value))))


def facts(pairs: Mapping[str, object]) -> str:
    """Return names and values, plain text both, as a card."""
    items = (
        f"<div><dt>{text(k)}</dt><dd>{text(v)}</dd></div>" for k, v in pairs.items()
    )
    return f'<dl class="facts">{"".join(items)}</dl>' if pairs else ""


def section(title: str, *parts: str, note: str = "") -> str:
    """Return a card with a heading; nothing if it has no parts.

    Args:
      title: Heading, as plain text.
      parts: Contents, as HTML.
      note: Plain text below the heading.
    """
    inner = "".join(parts)
    told = f'<p class="soft">{text(note)}</p>' if note else ""
    return f"<section><h2>{text(title)}</h2>{told}{inner}</section>" if inner else ""


def note(value: object) -> str:
    """Return a quiet paragraph of plain text."""
    return f'<p class="soft">{text(value)}</p>'


def table(
    head: Sequence[object],
    rows: Iterable[Sequence[str]],
    numbers: Iterable[int] = (),
    *,
    pinned: bool = False,
) -> str:
    """Return a table that is scrolled by itself where it is too wide.

    Args:
      head: Headings, as plain text.
      rows: Rows of cells, as HTML.
      numbers: Columns whose cells are numbers.
      pinned: Whether the first column stays where it is when the others are scrolled.
    """
    frame = "wide pinned" if pinned else "wide"
    kinds = [' class="number"' if i in set(numbers) else "" for i in range(len(head))]
    top = "".join(
        f"<th{k}>{text(name)}</th>" for k, name in zip(kinds, head, strict=True)
    )
    lines = "".join(
        "<tr>"
        + "".join(f"<td{k}>{cell}</td>" for k, cell in zip(kinds, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="{frame}"><table><thead><tr>{top}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>"
    )


def bar(share: float) -> str:
    """Return a bar that fills this share of its cell."""
    width = 100 * min(1.0, max(0.0, share))
    return f'<span class="bar"><i style="width:{width:.1f}%"></i></span>'


def figure(
    picture: str | None,
    lines: Sequence[str],
    *,
    tiny: bool,
    kind: str = "",
    zoom: bool = False,
) -> str:
    """Return a picture with its caption.

    Args:
      picture: its address, of our own making; None: there is none.
      lines: of the caption, HTML.
      tiny: show its pixels, larger than they are.
      kind: classes of the style; empty: none.
      zoom: Whether a click shows the picture as large as the window, another one as it
        was.
    """
    mark = ' class="tiny"' if tiny else ""
    frame = f'<img alt="" src="{picture}"{mark}>' if picture else "no picture"
    if picture and zoom:
        # Without a script: the style looks whether it is checked.
        box = '<input type="checkbox" aria-label="enlarge">'
        frame = f'<label class="zoom">{box}{frame}</label>'
    told = f' class="{kind}"' if kind else ""
    return (
        f'<figure{told}><div class="frame">{frame}</div>'
        f"<figcaption>{'<br>'.join(lines)}</figcaption></figure>"
    )
