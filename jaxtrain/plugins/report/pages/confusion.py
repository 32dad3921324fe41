"""Confusion matrices as SVG."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from jaxtrain.font import fitted, font
from jaxtrain.plugins.report.pages.text import text

# Maximum number of classes to draw with names and counts; larger matrices have only
# shades.
MAX_WRITTEN = 20
MAX_PAIRS = 12
CELL = 26
# Maximum width in pixels of a class name next to the matrix.
MAX_NAME = 130
# Number of shades in a matrix without counts.
SHADES = 6


class ConfusedPair(NamedTuple):
    """Off-diagonal cell of a confusion matrix.

    Attributes:
      true: Name of the true class.
      predicted: Name of the predicted class.
      num: Number of images.
      part: `num` divided by the number of images of the true class.
    """

    true: str
    predicted: str
    num: int
    part: float


class Confusion(NamedTuple):
    """Confusion matrix as SVG, and its largest off-diagonal cells."""

    picture: Markup
    pairs: list[ConfusedPair]


def confusion(counts: np.ndarray, names: Sequence[str]) -> Confusion:
    """Draw a confusion matrix, and list its most frequent confusions.

    Args:
      counts: Confusion matrix, int (C, C); rows are true classes.
      names: Names of the classes.
    """
    parts = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    many = len(counts) > MAX_WRITTEN
    picture = _shaded(counts, parts) if many else _written(counts, parts, names)
    return Confusion(picture, _pairs(counts, parts, names))


def _pairs(
    counts: np.ndarray, parts: np.ndarray, names: Sequence[str]
) -> list[ConfusedPair]:
    wrong = counts * (1 - np.eye(len(counts), dtype=counts.dtype))
    order = np.argsort(-wrong, axis=None, kind="stable")[:MAX_PAIRS]
    rows, columns = np.unravel_index(order, counts.shape)
    return [
        ConfusedPair(names[i], names[k], int(wrong[i, k]), float(parts[i, k]))
        for i, k in zip(map(int, rows), map(int, columns), strict=True)
        if wrong[i, k]
    ]


def _written(counts: np.ndarray, parts: np.ndarray, names: Sequence[str]) -> Markup:
    """Draw a matrix with names and counts; `parts` are row-normalized counts."""
    words = [fitted(name, MAX_NAME) for name in names]
    margin = max(24, 12 + math.ceil(max(map(font().getlength, words))))
    side = margin + CELL * len(names)
    cells = []
    for (row, column), count in np.ndenumerate(counts):
        x, y, part = margin + column * CELL, margin + row * CELL, parts[row, column]
        if count:
            cells.append(_cell(x, y, CELL, row == column, float(part)))
            strong = "over" if part > 0.5 else "seen"
            cells.append(
                f'<text class="{strong}" x="{x + CELL / 2}" y="{y + CELL / 2 + 4}" '
                f'text-anchor="middle">{_count(int(count))}</text>'
            )
    for i, word in enumerate(map(text, words)):
        place = margin + i * CELL + CELL / 2
        cells.append(
            f'<text x="{margin - 6}" y="{place + 4}" text-anchor="end">{word}</text>'
            f'<text transform="translate({place + 4} {margin - 6}) rotate(-90)">'
            f"{word}</text>"
        )
    return _svg(side, margin, "".join(cells), side - margin)


def _shaded(counts: np.ndarray, parts: np.ndarray) -> Markup:
    """Draw a matrix of many classes, with one SVG path per shade."""
    paths: dict[tuple[bool, int], list[str]] = {}
    for row, column in np.argwhere(counts > 0).tolist():
        shade = 1 + min(SHADES - 1, int(parts[row, column] * SHADES))
        square = f"M{column} {row}h1v1h-1z"
        paths.setdefault((row == column, shade), []).append(square)
    drawn = "".join(
        f'<path class="area k{0 if right else 1}" d="{"".join(squares)}" '
        f'fill-opacity="{_opacity(right, shade / SHADES):.2f}"/>'
        for (right, shade), squares in paths.items()
    )
    return _svg(len(counts), 0, drawn, len(counts))


def _cell(x: float, y: float, size: float, right: bool, part: float) -> str:
    """Draw a matrix cell as an SVG square.

    Args:
      x: Left edge in pixels.
      y: Top edge in pixels.
      size: Side length in pixels.
      right: Whether the predictions are correct; selects the colour.
      part: Count divided by the row total; sets the opacity.
    """
    kind = 0 if right else 1
    return (
        f'<rect class="area k{kind}" x="{x}" y="{y}" width="{size}" height="{size}" '
        f'fill-opacity="{_opacity(right, part):.2f}"/>'
    )


def _opacity(right: bool, part: float) -> float:
    """Opacity of a cell, high enough that a single mistake is visible."""
    least = 0.12 if right else 0.25
    return least + (1 - least) * part


def _svg(side: float, margin: float, drawn: str, size: float) -> Markup:
    # Small matrices are not stretched to the page width.
    width = min(640, max(220, round(side * 1.25)))
    frame = (
        f'<path class="grid" vector-effect="non-scaling-stroke" '
        f'd="M{margin} {margin}h{size}v{size}h-{size}z"/>'
    )
    return Markup(
        f'<svg class="matrix" style="max-width:{width if margin else 640}px" '
        f'viewBox="0 0 {side} {side}" role="img" aria-label="confusion matrix">'
        f"{drawn}{frame}</svg>"
    )


def _count(count: int) -> str:
    return str(count) if count < 10_000 else f"{count / 1000:.0f}k"
