"""Pictures of metrics."""

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from jaxtrain.pages.font import fitted, font

# Pixels: of a whole matrix, at least, and of a name beside it.
SIDE, MARGIN = 480, 60
# Cells smaller than this hold no number.
MIN_TEXT_CELL = 24
LIGHT, DARK = np.array([247, 251, 255]), np.array([8, 48, 107])


def draw_matrix(counts: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """Draw a matrix of counts as cells, the darker the larger their part of the row.

    Pillow takes 4 ms for ten classes, matplotlib 0.2 s: it is done at each evaluation.

    Args:
      counts: (rows, columns), rows and columns of the same names.
      names: of the rows, and of the columns.

    Returns:
      uint8 (H, W, 3).
    """
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    colours = LIGHT + share[..., None] * (DARK - LIGHT)
    cell = max(4, SIDE // len(names))
    cells = colours.round().astype(np.uint8).repeat(cell, 0).repeat(cell, 1)
    height, width, _ = cells.shape
    picture = Image.new("RGB", (width + MARGIN, height + MARGIN), "white")
    picture.paste(Image.fromarray(cells), (MARGIN, MARGIN))
    if cell >= MIN_TEXT_CELL:
        _write(ImageDraw.Draw(picture), counts, share, names, cell)
    return np.asarray(picture)


def _write(
    draw: ImageDraw.ImageDraw,
    counts: np.ndarray,
    share: np.ndarray,
    names: Sequence[str],
    cell: int,
) -> None:
    """Write the counts, and the names of rows (left) and columns (above)."""
    places = [MARGIN + i * cell + cell // 2 for i in range(len(names))]
    draw.font = font()
    draw.text((4, 4), "true: rows\nfound: columns", fill="black", font=font(9))
    for name, place in zip(names, places, strict=True):
        left, above = fitted(name, MARGIN - 6), fitted(name, cell - 4)
        draw.text((MARGIN - 4, place), left, fill="black", anchor="rm")
        draw.text((place, MARGIN - 4), above, fill="black", anchor="mb")
    for (row, column), count in np.ndenumerate(counts):
        fill = "white" if share[row, column] > 0.5 else "black"
        draw.text((places[column], places[row]), str(count), fill=fill, anchor="mm")
