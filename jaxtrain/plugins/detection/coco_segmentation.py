"""Bounding boxes of COCO segmentations: polygons or run-length encoded masks."""

import itertools
from typing import Any

from jaxtrain.plugins.detection.box_lists import MAX_SIDE

# Left, top, width and height in pixels.
Bounds = tuple[float, float, float, float]


def bounds(segmentation: Any) -> Bounds | None:
    """Return the bounding box of a segmentation; None if it is empty or invalid."""
    if isinstance(segmentation, dict):
        return _mask_bounds(segmentation)
    parts = segmentation if isinstance(segmentation, list) else []
    if parts and not isinstance(parts[0], list):
        parts = [parts]  # A single polygon, not in a list.
    numbers: list[list[float]] = [[], []]
    for part in parts:
        if not isinstance(part, list) or len(part) % 2:
            return None
        if not all(type(x) in (int, float) and abs(x) < 1e30 for x in part):
            return None
        numbers[0] += part[::2]
        numbers[1] += part[1::2]
    if not numbers[0]:
        return None
    (left, right), (top, bottom) = ((min(some), max(some)) for some in numbers)
    return left, top, right - left, bottom - top


def _mask_bounds(mask: dict[str, Any]) -> Bounds | None:
    """Return the bounding box of a column-major RLE; None if it is empty or invalid."""
    counts, size = mask.get("counts"), mask.get("size")
    if isinstance(counts, str):
        counts = _decompress_counts(counts)
    if not (isinstance(counts, list) and isinstance(size, list) and len(size) == 2):
        return None
    if not all(type(x) is int and 0 <= x <= MAX_SIDE**2 for x in (*counts, *size)):
        return None
    height, ends = size[0], [*itertools.accumulate(counts)]
    if not height or not ends or ends[-1] > height * size[1]:
        return None
    runs = [(a, b - 1) for a, b in zip(ends[::2], ends[1::2], strict=False) if b > a]
    if not runs:
        return None
    left, right = runs[0][0] // height, runs[-1][1] // height
    crosses_columns = any(a // height != b // height for a, b in runs)
    top = 0 if crosses_columns else min(a % height for a, _ in runs)
    bottom = height - 1 if crosses_columns else max(b % height for _, b in runs)
    return left, top, right - left + 1, bottom - top + 1


def _decompress_counts(text: str) -> list[int] | None:
    """Decode COCO's compressed RLE counts; None if they are invalid.

    A count is stored in groups of five bits, the lowest bits first. From the fourth
    count on, the stored value is the difference from the count two positions before.
    """
    counts: list[int] = []
    value = shift = 0
    for character in text:
        code = ord(character) - 48
        if not 0 <= code < 64 or shift > 60:
            return None
        value |= (code & 31) << shift
        shift += 5
        if code & 32:
            continue
        if code & 16:
            value -= 1 << shift
        counts.append(value + (counts[-2] if len(counts) > 2 else 0))
        value = shift = 0
    return counts
