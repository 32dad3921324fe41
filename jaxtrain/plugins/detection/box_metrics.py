"""COCO's box metrics, computed on the host as in pycocotools.

Lin et al. 2014, arXiv:1405.0312; `cocoeval.py` of pycocotools. Areas are in pixels of
the model's input image.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxtrain.tasks.metrics import Metric

# IoU thresholds for matches, and recall thresholds of the interpolated precision.
THRESHOLDS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0, 1, 101)
# Maximum numbers of detections per class and image; the highest scores are used.
COUNTS = (1, 10, 100)
MOST = COUNTS[-1]
# Ranges of the box area in square pixels: all, small, medium and large.
AREAS = np.array([[0, 1e10], [0, 32**2], [32**2, 96**2], [96**2, 1e10]])
ALL, SMALL, MEDIUM, LARGE = range(len(AREAS))
EVERY = slice(None)
# Metric name -> (title, function that computes the metric from a `Found`).
KNOWN: dict[str, tuple[str, Callable[["Found"], Any]]] = {
    "map": ("mAP", lambda found: found.mean(EVERY)),
    "map50": ("mAP at 0.5", lambda found: found.mean(slice(0, 1))),
    "map75": ("mAP at 0.75", lambda found: found.mean(slice(5, 6))),
    "map_small": ("mAP of small boxes", lambda found: found.mean(EVERY, SMALL)),
    "map_medium": ("mAP of medium boxes", lambda found: found.mean(EVERY, MEDIUM)),
    "map_large": ("mAP of large boxes", lambda found: found.mean(EVERY, LARGE)),
    "ar1": ("AR of 1", lambda found: _mean(found.recall[0])),
    "ar10": ("AR of 10", lambda found: _mean(found.recall[1])),
    "ar100": ("AR of 100", lambda found: _mean(found.recall[2])),
}
OF_CLASSES, BOXES_OF_CLASSES = "class_ap", "class_boxes"


class Found(NamedTuple):
    """Evaluation results of each class; NaN for classes without ground truth.

    Attributes:
      precision: Average precision per area range (`AREAS`), class and IoU threshold,
        (4, classes, 10).
      recall: Recall for boxes of all areas, per detection limit (`COUNTS`), class and
        IoU threshold, (3, classes, 10).
      num_true: Number of ground-truth boxes per class, (classes,).
    """

    precision: np.ndarray
    recall: np.ndarray
    num_true: np.ndarray

    def mean(self, thresholds: slice, area: int = ALL) -> float | None:
        """Return the AP, averaged over classes and IoU thresholds, or None."""
        return _mean(self.precision[area][:, thresholds])


class Match(NamedTuple):
    """Detections of one class in one image, and their matches, best score first.

    Attributes:
      score: Score of each detection, (n,).
      hit: Whether each detection matches a ground-truth box, per area range and IoU
        threshold, (4, 10, n).
      ignored: Whether each detection is ignored, such as a match with a crowd,
        (4, 10, n).
    """

    score: np.ndarray
    hit: np.ndarray
    ignored: np.ndarray


def metrics(keep: Callable[[Any, Any], Any]) -> Mapping[str, Metric]:
    """Return COCO's metrics by name.

    Args:
      keep: Function `(outputs, target) -> {"found": ..., "true": ...}`, which returns
        the arguments of `evaluate`.
    """
    cached = _CachedEvaluation()

    def metric(value: Callable[[Found], Any], **rest: Any) -> Metric:
        def evaluate_kept(kept: Any, num_examples: int) -> Any:
            return value(cached(kept))

        return Metric(keep=keep, value=evaluate_kept, **rest)

    named = {
        name: metric(value, better="higher", title=title)
        for name, (title, value) in KNOWN.items()
    }
    return {
        **named,
        OF_CLASSES: metric(
            lambda found: _listed(found.precision[ALL]), title="class AP"
        ),
        BOXES_OF_CLASSES: metric(
            lambda found: found.num_true.tolist(), title="boxes of each class"
        ),
    }


class _CachedEvaluation:
    """`evaluate` with a cache of the last result, which all metrics share."""

    def __init__(self) -> None:
        self._last: tuple[Any, Found] | None = None

    def __call__(self, kept: Any) -> Found:
        if self._last is None or self._last[0] is not kept:
            self._last = kept, evaluate(kept["found"], kept["true"])
        return self._last[1]


def evaluate(found: Mapping[str, np.ndarray], true: Mapping[str, np.ndarray]) -> Found:
    """Evaluate the detections of N images against the ground truth.

    Args:
      found: Detections: `boxes` (left, top, right, bottom), (N, K, 4); `scores`,
        (N, K); and `classes`, (N, K), -1 for padding.
      true: Ground truth: `boxes`, (N, M, 4); `classes`, (N, M), -1 for padding; and
        `crowd`, bool (N, M).
    """
    found_classes, true_classes = found["classes"], true["classes"]
    num_classes = (
        int(max(found_classes.max(initial=-1), true_classes.max(initial=-1))) + 1
    )
    shape = num_classes, len(THRESHOLDS)
    precision = np.full((len(AREAS), *shape), np.nan)
    recall, num_true = np.full((len(COUNTS), *shape), np.nan), np.zeros(shape[0], int)
    for kind in range(num_classes):
        is_true, is_found = true_classes == kind, found_classes == kind
        sizes = areas(true["boxes"][is_true & ~true["crowd"]])
        num_of_area = (~outside(sizes)).sum(-1)
        num_true[kind] = num_of_area[ALL]
        matches = [
            match(
                found["boxes"][i][is_found[i]],
                found["scores"][i][is_found[i]],
                true["boxes"][i][is_true[i]],
                true["crowd"][i][is_true[i]],
            )
            for i in np.flatnonzero(is_found.any(-1)).tolist()
        ]
        for area, num in enumerate(num_of_area.tolist()):
            if num:
                precision[area, kind] = average_precision(matches, area, num)
        if num_true[kind]:
            recall[:, kind] = recalls(matches, num_true[kind])
    return Found(precision, recall, num_true)


def areas(boxes: np.ndarray) -> np.ndarray:
    """Return the areas of boxes (n, 4), float64 (n,)."""
    sides = boxes.astype(np.float64)
    return (sides[..., 2:] - sides[..., :2]).prod(-1)


def outside(sizes: np.ndarray) -> np.ndarray:
    """Whether each area, (n,), is outside each range of `AREAS`, bool (4, n)."""
    return (sizes < AREAS[:, :1]) | (sizes > AREAS[:, 1:])


def match(
    boxes: np.ndarray, scores: np.ndarray, true: np.ndarray, crowd: np.ndarray
) -> Match:
    """Match the detections of one class in one image with its ground-truth boxes.

    In descending order of score, each detection is matched with the unmatched box of
    highest IoU, if the IoU reaches the threshold. Ignored boxes (crowds, and boxes
    outside the area range) are matched only if no other box can be. A crowd can match
    several detections.

    Args:
      boxes: Boxes of the detections, (n, 4).
      scores: Score of each detection, (n,).
      true: Ground-truth boxes, (m, 4).
      crowd: Whether each ground-truth box is a crowd, bool (m,).
    """
    order = np.argsort(-scores, kind="mergesort")[:MOST]
    overlap = overlaps(boxes[order], true, crowd)
    least = np.tile(np.minimum(THRESHOLDS, 1 - 1e-10), len(AREAS))[:, None]
    num_rows = len(least)
    excluded = np.repeat(crowd | outside(areas(true)), len(THRESHOLDS), axis=0)
    hit, ignored = np.zeros((2, num_rows, len(order)), bool)
    taken = np.zeros((num_rows, len(true)), bool)
    rows = np.arange(num_rows)
    for n in range(len(order) if len(true) else 0):
        enough = (overlap[n] >= least) & (crowd | ~taken)
        for eligible, marked in ((~excluded, hit), (excluded, ignored)):
            # Ties go to the last box, as in pycocotools.
            value = np.where(enough & eligible, overlap[n], -1)[:, ::-1]
            best = value.argmax(-1)
            good = (value[rows, best] >= 0) & ~hit[:, n]
            marked[:, n] |= good
            taken[rows[good], len(true) - 1 - best[good]] = True
    ignored |= ~hit & np.repeat(outside(areas(boxes[order])), len(THRESHOLDS), axis=0)
    shape = len(AREAS), len(THRESHOLDS), len(order)
    return Match(scores[order], hit.reshape(shape), ignored.reshape(shape))


def overlaps(boxes: np.ndarray, true: np.ndarray, crowd: np.ndarray) -> np.ndarray:
    """Return pairwise IoU, (n, m); for crowds, intersection over detection area."""
    one, other = boxes.astype(np.float64)[:, None], true.astype(np.float64)[None]
    least = np.maximum(one[..., :2], other[..., :2])
    most = np.minimum(one[..., 2:], other[..., 2:])
    both = np.maximum(most - least, 0).prod(-1)
    area = areas(one)
    either = np.where(crowd[None], area, area + areas(other) - both)
    return both / np.where(either > 0, either, 1)


def average_precision(matches: list[Match], area: int, num_true: int) -> np.ndarray:
    """Return the average precision at each IoU threshold, (10,).

    Args:
      matches: Matches of one class, per image.
      area: Index of the area range in `AREAS`.
      num_true: Number of ground-truth boxes in the area range.
    """
    found = np.zeros(len(THRESHOLDS))
    if not matches:
        return found
    order = np.argsort(-np.concatenate([m.score for m in matches]), kind="mergesort")
    hit = np.concatenate([m.hit[area] for m in matches], -1)[:, order]
    ignored = np.concatenate([m.ignored[area] for m in matches], -1)[:, order]
    hits = np.cumsum(hit & ~ignored, -1)
    misses = np.cumsum(~hit & ~ignored, -1)
    reached = hits / num_true
    precisions = hits / (hits + misses + np.spacing(1))
    # Precision envelope: the maximum at this or any higher recall.
    best = np.maximum.accumulate(precisions[:, ::-1], -1)[:, ::-1]
    for i, (recall, precision) in enumerate(zip(reached, best, strict=True)):
        places = np.searchsorted(recall, RECALLS, side="left")
        good = places < len(precision)
        found[i] = precision[places[good]].sum() / len(RECALLS)
    return found


def recalls(matches: list[Match], num_true: int) -> np.ndarray:
    """Return the recall per detection limit (`COUNTS`) and IoU threshold, (3, 10).

    Args:
      matches: Matches of one class, per image.
      num_true: Number of ground-truth boxes of the class.
    """
    found = np.zeros((len(COUNTS), len(THRESHOLDS)), int)
    for one in matches:
        counts = one.hit[ALL] & ~one.ignored[ALL]
        found += np.stack([counts[:, :most].sum(-1) for most in COUNTS])
    return found / num_true


def _mean(values: np.ndarray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else None


def _listed(precision: np.ndarray) -> list[float | None]:
    return [_mean(row) for row in precision]
