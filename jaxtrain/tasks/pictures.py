"""Drawing of confusion matrices, masks and boxes."""

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from jaxtrain.font import fitted, font

# Approximate side of a confusion matrix, and width of the margin with names, in pixels.
SIDE, MARGIN = 480, 60
# Smallest side of a cell that shows its count, in pixels.
MIN_TEXT_CELL = 24
LIGHT, DARK = np.array([247, 251, 255]), np.array([8, 48, 107])
# Colours of pixel classes and boxes drawn over an image.
COLOURS = np.array(
    [
        *((230, 80, 30), (50, 130, 240), (60, 190, 90), (170, 90, 220)),
        *((240, 200, 40), (230, 70, 150), (40, 190, 200), (150, 150, 150)),
    ],
    np.uint8,
)


def _palette() -> np.ndarray:
    """Create the palette of PASCAL VOC, from the bits of the class index."""
    numbers = np.arange(256)[:, None]
    colours = np.zeros((256, 3), int)
    for bit in range(8):
        bits = numbers >> np.arange(3) & 1
        colours |= bits << (7 - bit)
        numbers = numbers >> 3
    return colours.astype(np.uint8)


# Palette of masks: 0 is black, 255 nearly white.
PALETTE = _palette()


def draw_matrix(counts: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """Draw a confusion matrix; darker cells are larger fractions of their row.

    Uses Pillow, as each evaluation draws a matrix: 4 ms for ten classes, compared with
    0.2 s in matplotlib.

    Args:
      counts: Square matrix of counts.
      names: Class names, for rows and columns.

    Returns:
      The image, uint8 (H, W, 3).
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


def overlay(
    image: np.ndarray, classes: np.ndarray, colours: np.ndarray = COLOURS
) -> np.ndarray:
    """Overlay pixel classes on an image, uint8 (H, W, C).

    Args:
      image: Image to draw the translucent colours on.
      classes: Class of each pixel, int (H, W); 0 or less is transparent.
      colours: Colours of classes 1, 2, ..., uint8 (N, 3), repeated cyclically.

    Returns:
      The image, uint8 (H, W, 3).
    """
    classes, pixels = np.asarray(classes, np.int64)[..., None], _coloured(image)
    half = pixels // 2 + colours[(classes[..., 0] - 1) % len(colours)] // 2
    return np.where(classes > 0, half, pixels)


def mistakes(image: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """Highlight misclassified pixels in a darkened image.

    Args:
      image: Image to highlight, uint8 (H, W, C).
      wrong: Mask of misclassified pixels, bool (H, W).

    Returns:
      The image, uint8 (H, W, 3).
    """
    return overlay(_coloured(image) // 2, wrong)


def outlines(image: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Draw box outlines in alternating colours on an image, uint8 (H, W, C).

    Args:
      image: Image to draw on.
      boxes: Left, top, right and bottom in pixels, (N, 4); NaN boxes are skipped.

    Returns:
      The image, uint8 (H, W, 3).
    """
    picture = Image.fromarray(_coloured(image))
    draw, boxes = ImageDraw.Draw(picture), np.asarray(boxes, np.float64).reshape(-1, 4)
    for number in np.flatnonzero(np.isfinite(boxes).all(-1)):
        # Pillow cannot draw coordinates far outside of the image.
        x, y = np.sort(boxes[number].clip(-1e4, 1e4).reshape(2, 2), axis=0).T
        colour = tuple(COLOURS[number % len(COLOURS)].tolist())
        draw.rectangle((x[0], y[0], x[1], y[1]), outline=colour)
    return np.asarray(picture)


def labelled_boxes(
    image: np.ndarray, boxes: np.ndarray, classes: np.ndarray, texts: Sequence[str]
) -> np.ndarray:
    """Draw labelled boxes, coloured by class, on an image, uint8 (H, W, C).

    Args:
      image: Image to draw on.
      boxes: Left, top, right and bottom in pixels, (N, 4); the first box is on top.
      classes: Class of each box, (N,).
      texts: Text of each box.

    Returns:
      The image, uint8 (H, W, 3).
    """
    picture = Image.fromarray(_coloured(image))
    draw, wide = ImageDraw.Draw(picture), max(1, min(picture.size) // 200)
    size = int(np.clip(min(picture.size) // 30, 8, 24))
    for number in reversed(range(len(boxes))):
        left, top, right, bottom = boxes[number].tolist()
        colour = tuple(COLOURS[classes[number] % len(COLOURS)].tolist())
        draw.rectangle((left, top, right, bottom), outline=colour, width=wide)
        text = fitted(texts[number], max(picture.width - int(left), 1), size)
        where = left, max(0.0, top - size - 2)
        draw.rectangle(draw.textbbox(where, text, font=font(size)), fill=colour)
        draw.text(where, text, fill="white", font=font(size))
    return np.asarray(picture)


def _coloured(image: np.ndarray) -> np.ndarray:
    """Convert an image (H, W, C) to RGB."""
    return image[..., :3] if image.shape[-1] > 2 else image[..., :1].repeat(3, -1)


def _write(
    draw: ImageDraw.ImageDraw,
    counts: np.ndarray,
    share: np.ndarray,
    names: Sequence[str],
    cell: int,
) -> None:
    """Write counts in cells, row names at the left, and column names at the top."""
    places = [MARGIN + i * cell + cell // 2 for i in range(len(names))]
    draw.font = font()
    draw.text((4, 4), "true: rows\npredicted: columns", fill="black", font=font(9))
    for name, place in zip(names, places, strict=True):
        left, above = fitted(name, MARGIN - 6), fitted(name, cell - 4)
        draw.text((MARGIN - 4, place), left, fill="black", anchor="rm")
        draw.text((place, MARGIN - 4), above, fill="black", anchor="mb")
    for (row, column), count in np.ndenumerate(counts):
        fill = "white" if share[row, column] > 0.5 else "black"
        draw.text((places[column], places[row]), str(count), fill=fill, anchor="mm")
