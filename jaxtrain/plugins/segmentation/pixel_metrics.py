"""Segmentation metrics, computed on the host from sums on the device.

The number of pixels in a split may exceed int32, so a pixel count is a pair of int32:
the quotient and the remainder of its division by `UNIT`.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.dtypes import wide
from jaxtrain.tasks.metrics import Metric

# Divisor of pixel counts. int32 quotients suffice for 2^43 pixels per class; int32 sums
# of remainders suffice for 2^19 batches.
UNIT = 2**12
# The confusion matrix is recorded for up to this number of classes.
MAX_MATRIX = 100
# Boundary tolerance as a fraction of the image diagonal, as in DAVIS (Perazzi et al.
# 2016, section 5.1).
TOLERANCE = 0.008

# Function (outputs, target, mask) -> sums, on the device. `Task.known_metrics` passes
# unbound methods instead, as its metrics only describe recorded values and are never
# computed.
Add = Callable[..., jax.Array]


def confusion_sums(
    outputs: jax.Array, classes: jax.Array, counts: jax.Array
) -> jax.Array:
    """Confusion matrix of the pixels in a batch; rows are true classes.

    Args:
      outputs: Logits, (B, H, W, C).
      classes: True classes, integers (B, H, W).
      counts: Mask of valid pixels, bool (B, H, W).

    Returns:
      Entries of the matrix divided by `UNIT`: quotients and remainders, int32
      (2, C, C).
    """
    num_classes = outputs.shape[-1]
    true = jax.nn.one_hot(classes, num_classes, dtype=jnp.float32)
    true = jnp.where(counts[..., None], true, 0)
    found = jax.nn.one_hot(outputs.argmax(-1), num_classes, dtype=jnp.float32)
    # float32 counts are exact up to 2^24 pixels per image.
    of_images = jnp.einsum("bhwt,bhwp->btp", true, found).astype(jnp.int32)
    whole, rest = jnp.sum(of_images // UNIT, 0), jnp.sum(of_images % UNIT, 0)
    return jnp.stack([whole + rest // UNIT, rest % UNIT])


def joined(sums: Any) -> np.ndarray:
    """Convert the output of `confusion_sums` to a confusion matrix, int64 (C, C)."""
    whole, rest = np.asarray(sums).astype(np.int64)
    return whole * UNIT + rest


def iou_of(counts: np.ndarray, ignored: int | None) -> list[float | None]:
    """Intersection over union (IoU) of each class.

    Args:
      counts: Confusion matrix, int (C, C).
      ignored: Class that gets no IoU, if any. Pixels predicted as this class are
        errors.

    Returns:
      IoU per class; None for the ignored class, and for classes without true or
      predicted pixels.
    """
    hits, true, found = _parts(counts)
    return _shares_of(hits, true + found - hits, ignored)


def dice_of(counts: np.ndarray, ignored: int | None) -> list[float | None]:
    """Dice coefficient of each class: 2 TP / (2 TP + FP + FN).

    The arguments, and None in the result, are as in `iou_of`.
    """
    hits, true, found = _parts(counts)
    return _shares_of(2 * hits, true + found, ignored)


def accuracy_of(counts: np.ndarray) -> float | None:
    """Pixel accuracy from a confusion matrix; None without pixels."""
    total = int(counts.sum())
    return int(np.diag(counts).sum()) / total if total else None


def mean_of(values: list[float | None]) -> float | None:
    """Mean of the values that are not None; None if all values are None."""
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


def tolerance_of(height: int, width: int) -> int:
    """Maximum distance in pixels of matching boundaries, given the image size."""
    return math.ceil(TOLERANCE * math.hypot(height, width))


def boundary_sums(
    outputs: jax.Array,
    classes: jax.Array,
    counts: jax.Array,
    mask: jax.Array,
) -> jax.Array:
    """Per class: sum of the boundary F-score over images, and number of images.

    Precision is the fraction of predicted boundary pixels whose distance from the true
    boundary is at most `tolerance_of`; recall is the same with true and predicted
    exchanged. For a class, images without a true or predicted boundary are excluded
    (Csurka et al. 2013).

    Args:
      outputs: Logits, (B, H, W, C).
      classes: True classes, integers (B, H, W).
      counts: Mask of valid pixels, bool (B, H, W); its edges are not boundaries.
      mask: Mask of the examples, (B,); zero marks padding.

    Returns:
      Sums of the F-scores, and numbers of images, at least float32 (2, C).
    """
    found = outputs.argmax(-1)
    reach = tolerance_of(classes.shape[1], classes.shape[2])
    inside, dtype = _within(counts), wide(outputs.dtype)

    def of_class(number: jax.Array) -> tuple[jax.Array, jax.Array]:
        true, predicted = (_boundary(x == number) & inside for x in (classes, found))
        right = predicted & _dilated(true, reach)
        met = true & _dilated(predicted, reach)
        num_true, num_found = (x.sum((1, 2)).astype(dtype) for x in (true, predicted))
        precision = right.sum((1, 2)) / jnp.maximum(num_found, 1)
        recall = met.sum((1, 2)) / jnp.maximum(num_true, 1)
        both = precision + recall
        score = 2 * precision * recall / jnp.where(both > 0, both, 1)
        there = (num_true + num_found > 0) & (mask > 0)
        return jnp.where(there, score, 0).sum(), there.sum().astype(dtype)

    scores, numbers = jax.lax.map(of_class, jnp.arange(outputs.shape[-1]))
    return jnp.stack([scores, numbers])


def boundary_of(sums: np.ndarray, ignored: int | None) -> float | None:
    """Boundary F-score: mean per class over images, then mean over classes.

    Args:
      sums: Output of `boundary_sums`, summed over batches, (2, C).
      ignored: Class excluded from the mean; None excludes no class.
    """
    scores, numbers = sums
    return mean_of(_shares_of(scores, numbers, ignored))


def pixel_metrics(
    confusion: Add, boundary: Add, num_classes: int = 0, ignored: int | None = None
) -> dict[str, Metric]:
    """Segmentation metrics by name.

    Args:
      confusion: Function that calls `confusion_sums` on a batch.
      boundary: Function that calls `boundary_sums` on a batch.
      num_classes: Number of classes; above `MAX_MATRIX`, the confusion matrix is
        omitted.
      ignored: Class excluded from the metrics; None excludes no class.
    """

    def of(value: Callable[[np.ndarray], Any], **more: Any) -> Metric:
        return Metric(confusion, lambda sums, _: value(joined(sums)), **more)

    def iou(counts: np.ndarray) -> list[float | None]:
        return iou_of(counts, ignored)

    def dice(counts: np.ndarray) -> list[float | None]:
        return dice_of(counts, ignored)

    def boundary_f(sums: Any, num_examples: int) -> float | None:
        return boundary_of(np.asarray(sums, np.float64), ignored)

    higher = "higher"
    metrics = {
        "mean_iou": of(lambda c: mean_of(iou(c)), better=higher, title="mean IoU"),
        "pixel_accuracy": of(accuracy_of, better=higher, title="pixel accuracy"),
        "mean_dice": of(lambda c: mean_of(dice(c)), better=higher, title="mean Dice"),
        "boundary_f_score": Metric(
            boundary, boundary_f, better=higher, title="boundary F-score"
        ),
        "iou": of(iou, title="IoU"),
        "dice": of(dice, title="Dice"),
    }
    if num_classes <= MAX_MATRIX:
        metrics["confusion_matrix"] = of(lambda c: c.tolist())
    return metrics


def _parts(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.diag(counts), counts.sum(1), counts.sum(0)


def _shares_of(
    ones: np.ndarray, wholes: np.ndarray, ignored: int | None
) -> list[float | None]:
    pairs = enumerate(zip(ones.tolist(), wholes.tolist(), strict=True))
    return [a / b if b and i != ignored else None for i, (a, b) in pairs]


def _boundary(area: jax.Array) -> jax.Array:
    """Mask of pixels that differ from their right, lower or lower right neighbour.

    The image border is not a boundary.
    """
    right = jnp.concatenate([area[:, :, 1:], area[:, :, -1:]], 2)
    below = jnp.concatenate([area[:, 1:], area[:, -1:]], 1)
    both = jnp.concatenate([right[:, 1:], right[:, -1:]], 1)
    return (area != right) | (area != below) | (area != both)


def _within(counts: jax.Array) -> jax.Array:
    """Mask of valid pixels whose right and lower neighbours are valid."""
    return counts & ~_boundary(counts)


def _dilated(points: jax.Array, radius: int) -> jax.Array:
    """Dilate masks, bool (B, H, W), by a disk with a radius in pixels."""
    height, found = points.shape[1], jnp.zeros_like(points)
    padded = jnp.pad(points, ((0, 0), (radius, radius), (0, 0)))
    for offset in range(2 * radius + 1):
        half = math.isqrt(radius**2 - (offset - radius) ** 2)
        rows = padded[:, offset : offset + height]
        window = (1, 1, 2 * half + 1)
        padding = ((0, 0), (0, 0), (half, half))
        wide_rows = jax.lax.reduce_window(
            rows, False, jax.lax.bitwise_or, window, (1, 1, 1), padding
        )
        found |= wide_rows
    return found
