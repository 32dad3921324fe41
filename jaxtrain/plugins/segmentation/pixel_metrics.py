"""Segmentation metrics: sums on the device, values on the host.

The number of pixels of a split may overflow int32, so a count is a pair of int32: the
quotient and the remainder of a division by `UNIT`.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.dtypes import wide
from jaxtrain.tasks.metrics import Metric

# Pixel counts are stored as quotient and remainder by `UNIT`: int32 quotients hold up
# to 2^43 pixels per class, and int32 sums of remainders hold up to 2^19 batches.
UNIT = 2**12
# Maximum number of classes for a recorded confusion matrix.
MAX_MATRIX = 100
# Boundary tolerance as a fraction of the image diagonal, as in DAVIS (Perazzi et al.
# 2016, section 5.1).
TOLERANCE = 0.008

# (outputs, target, mask) -> sums on the device. In `known_metrics` of a task class the
# functions are unbound methods: those metrics only describe recorded values, and their
# functions are never called.
Add = Callable[..., jax.Array]


def confusion_sums(
    outputs: jax.Array, classes: jax.Array, counts: jax.Array
) -> jax.Array:
    """Confusion matrix of pixels: true classes in rows, predicted classes in columns.

    Args:
      outputs: Logits, (B, H, W, C).
      classes: True classes, integers (B, H, W).
      counts: Mask of valid pixels, bool (B, H, W).

    Returns:
      int32 (2, C, C): quotients and remainders of the counts divided by `UNIT`.
    """
    num_classes = outputs.shape[-1]
    true = jax.nn.one_hot(classes, num_classes, dtype=jnp.float32)
    true = jnp.where(counts[..., None], true, 0)
    found = jax.nn.one_hot(outputs.argmax(-1), num_classes, dtype=jnp.float32)
    # Exact up to 2^24 pixels per image.
    of_images = jnp.einsum("bhwt,bhwp->btp", true, found).astype(jnp.int32)
    whole, rest = jnp.sum(of_images // UNIT, 0), jnp.sum(of_images % UNIT, 0)
    return jnp.stack([whole + rest // UNIT, rest % UNIT])


def joined(sums: Any) -> np.ndarray:
    """Combine the pairs of `confusion_sums` into a confusion matrix, int64 (C, C)."""
    whole, rest = np.asarray(sums).astype(np.int64)
    return whole * UNIT + rest


def iou_of(counts: np.ndarray, ignored: int | None) -> list[float | None]:
    """Intersection over union (IoU) of each class.

    Args:
      counts: Confusion matrix, int (C, C).
      ignored: Class whose IoU is None; pixels predicted as this class count as errors.
        None ignores no class.

    Returns:
      One value per class; None for classes without pixels and the ignored class.
    """
    hits, true, found = _parts(counts)
    return _shares_of(hits, true + found - hits, ignored)


def dice_of(counts: np.ndarray, ignored: int | None) -> list[float | None]:
    """Dice coefficient of each class, 2 TP / (true + predicted).

    Arguments and result are as in `iou_of`.
    """
    hits, true, found = _parts(counts)
    return _shares_of(2 * hits, true + found, ignored)


def accuracy_of(counts: np.ndarray) -> float | None:
    """Pixel accuracy."""
    total = int(counts.sum())
    return int(np.diag(counts).sum()) / total if total else None


def mean_of(values: list[float | None]) -> float | None:
    """Mean of the values that are not None; None if all values are None."""
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


def tolerance_of(height: int, width: int) -> int:
    """Boundary tolerance in pixels for an image size."""
    return math.ceil(TOLERANCE * math.hypot(height, width))


def boundary_sums(
    outputs: jax.Array,
    classes: jax.Array,
    counts: jax.Array,
    mask: jax.Array,
) -> jax.Array:
    """Sum of the boundary F-scores over images, and number of images, per class.

    Precision is the fraction of the predicted boundary within the DAVIS tolerance of
    the true boundary; recall is the fraction of the true boundary within the tolerance
    of the predicted boundary. An image counts for the classes that have a true or
    predicted boundary in it (Csurka et al. 2013).

    Args:
      outputs: Logits, (B, H, W, C).
      classes: True classes, integers (B, H, W).
      counts: Mask of valid pixels, bool (B, H, W); the edge of the mask is not a
        boundary.
      mask: Mask of the examples, (B,); zero marks padding.

    Returns:
      Float (2, C): sums of the scores, and numbers of images.
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
    """Boundary F-score: mean over the images of each class, then over the classes.

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
      confusion: Function of a batch that computes `confusion_sums`.
      boundary: Function of a batch that computes `boundary_sums`.
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
    """Pixels that differ from the right, lower or lower right neighbour, (B, H, W).

    The last row and column are edge-padded, so the image border is no boundary.
    """
    right = jnp.concatenate([area[:, :, 1:], area[:, :, -1:]], 2)
    below = jnp.concatenate([area[:, 1:], area[:, -1:]], 1)
    both = jnp.concatenate([right[:, 1:], right[:, -1:]], 1)
    return (area != right) | (area != below) | (area != both)


def _within(counts: jax.Array) -> jax.Array:
    """Mask of valid pixels with valid right and lower neighbours, bool (B, H, W)."""
    return counts & ~_boundary(counts)


def _dilated(points: jax.Array, radius: int) -> jax.Array:
    """Dilate a mask by a radius in pixels, bool (B, H, W)."""
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
