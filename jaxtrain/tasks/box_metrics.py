"""COCO's metrics of boxes, as pycocotools computes them, of all areas.

Lin et al. 2014, arXiv:1405.0312; `cocoeval.py` of pycocotools. On the host, of what was
found in each image and what is there.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxtrain.tasks.metrics import Metric

# Intersections over the union from which on a box is found, and recalls at which the
# precision is looked at.
THRESHOLDS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0, 1, 101)
# Boxes of a class in an image that count, those of the highest scores.
MOST = 100
# Name, title -> value of what was found.
KNOWN: dict[str, tuple[str, Callable[["Found"], Any]]] = {
    "map": ("mAP", lambda found: found.mean(slice(None))),
    "map50": ("mAP at 0.5", lambda found: found.mean(slice(0, 1))),
    "map75": ("mAP at 0.75", lambda found: found.mean(slice(5, 6))),
    "ar100": ("AR of 100", lambda found: _mean(found.recall)),
}
OF_CLASSES, BOXES_OF_CLASSES = "class_ap", "class_boxes"


class Found(NamedTuple):
    """What was found of each class; NaN of those that are not there.

    Attributes:
      precision: Average precision at each threshold, (classes, 10).
      recall: Recall at each threshold, (classes, 10).
      num_true: Number of boxes that are there, (classes,).
    """

    precision: np.ndarray
    recall: np.ndarray
    num_true: np.ndarray

    def mean(self, thresholds: slice) -> float | None:
        """Return the mean average precision at some thresholds; None of no boxes."""
        return _mean(self.precision[:, thresholds])


class Match(NamedTuple):
    """The boxes found of a class in an image, the best first.

    Attributes:
      score: Score of each, (n,).
      hit: Whether each is one of those there, at each threshold, (10, n).
      ignored: Whether each counts neither way, as one in a crowd, (10, n).
    """

    score: np.ndarray
    hit: np.ndarray
    ignored: np.ndarray


def metrics(keep: Callable[[Any, Any], Any]) -> Mapping[str, Metric]:
    """Return the metrics of what `keep` keeps of each image.

    Args:
      keep: Function `(outputs, target) -> arrays (B, ...)`: `found`, with `boxes`,
        `scores` and `classes`, -1 for padding, and `true`, with `boxes`, `classes` and
        `crowd`.
    """
    once = _Once()

    def metric(value: Callable[[Found], Any], **rest: Any) -> Metric:
        def of_kept(kept: Any, num_examples: int) -> Any:
            return value(once(kept))

        return Metric(keep=keep, value=of_kept, **rest)

    named = {
        name: metric(value, better="higher", title=title)
        for name, (title, value) in KNOWN.items()
    }
    return {
        **named,
        OF_CLASSES: metric(lambda found: _listed(found.precision), title="class AP"),
        BOXES_OF_CLASSES: metric(
            lambda found: found.num_true.tolist(), title="boxes of each class"
        ),
    }


class _Once:
    """Evaluates what was kept once for all metrics."""

    def __init__(self) -> None:
        self._last: tuple[Any, Found] | None = None

    def __call__(self, kept: Any) -> Found:
        if self._last is None or self._last[0] is not kept:
            self._last = kept, evaluate(kept["found"], kept["true"])
        return self._last[1]


def evaluate(found: Mapping[str, np.ndarray], true: Mapping[str, np.ndarray]) -> Found:
    """Compare the boxes that were found in images with those that are there.

    Args:
      found: `boxes` (N, K, 4), left, top, right and bottom; `scores` (N, K); `classes`
        (N, K), -1 for padding.
      true: `boxes` (N, M, 4), `classes` (N, M) and `crowd` (N, M).
    """
    kinds, wanted = found["classes"], true["classes"]
    num_classes = int(max(kinds.max(initial=-1), wanted.max(initial=-1))) + 1
    precision = np.full((num_classes, len(THRESHOLDS)), np.nan)
    recall, num_true = precision.copy(), np.zeros(num_classes, np.int64)
    for kind in range(num_classes):
        there, here = wanted == kind, kinds == kind
        num_true[kind] = (there & ~true["crowd"]).sum()
        matches = [
            match(
                found["boxes"][i][here[i]],
                found["scores"][i][here[i]],
                true["boxes"][i][there[i]],
                true["crowd"][i][there[i]],
            )
            for i in np.flatnonzero(here.any(-1)).tolist()
        ]
        if num_true[kind]:
            precision[kind], recall[kind] = accumulate(matches, num_true[kind])
    return Found(precision, recall, num_true)


def match(
    boxes: np.ndarray, scores: np.ndarray, true: np.ndarray, crowd: np.ndarray
) -> Match:
    """Match the boxes found of a class in an image with those there, the best first.

    Each takes the box that it overlaps most and that none before has taken; a crowd,
    which any number of boxes may take, only if there is no other.
    """
    order = np.argsort(-scores, kind="mergesort")[:MOST]
    overlap = overlaps(boxes[order], true, crowd)
    shape = len(THRESHOLDS), len(order)
    hit, ignored = np.zeros(shape, bool), np.zeros(shape, bool)
    taken = np.zeros((len(THRESHOLDS), len(true)), bool)
    least = np.minimum(THRESHOLDS, 1 - 1e-10)[:, None]
    rows = np.arange(len(THRESHOLDS))
    for n in range(len(order) if len(true) else 0):
        enough = overlap[n] >= least
        for some, marked in ((~crowd & ~taken, hit), (crowd[None], ignored)):
            # Of equal overlaps the last counts, as in pycocotools.
            value = np.where(enough & some, overlap[n], -1)[:, ::-1]
            best = value.argmax(-1)
            good = (value[rows, best] >= 0) & ~hit[:, n]
            marked[:, n] |= good
            if marked is hit:
                taken[rows[good], len(true) - 1 - best[good]] = True
    return Match(scores[order], hit, ignored)


def overlaps(boxes: np.ndarray, true: np.ndarray, crowd: np.ndarray) -> np.ndarray:
    """Return the intersections over the unions, (n, m); over the box, of crowds."""
    one, other = boxes.astype(np.float64)[:, None], true.astype(np.float64)[None]
    least = np.maximum(one[..., :2], other[..., :2])
    most = np.minimum(one[..., 2:], other[..., 2:])
    both = np.maximum(most - least, 0).prod(-1)
    area, others = ((x[..., 2:] - x[..., :2]).prod(-1) for x in (one, other))
    either = np.where(crowd[None], area, area + others - both)
    return both / np.where(either > 0, either, 1)


def accumulate(matches: list[Match], num_true: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the average precision and the recall at each threshold, (10,) each."""
    if not matches:
        return np.zeros(len(THRESHOLDS)), np.zeros(len(THRESHOLDS))
    order = np.argsort(-np.concatenate([m.score for m in matches]), kind="mergesort")
    hit = np.concatenate([m.hit for m in matches], -1)[:, order]
    ignored = np.concatenate([m.ignored for m in matches], -1)[:, order]
    hits = np.cumsum(hit & ~ignored, -1)
    misses = np.cumsum(~hit & ~ignored, -1)
    recalls = hits / num_true
    precisions = hits / (hits + misses + np.spacing(1))
    # From the right, the best that is still to come.
    best = np.maximum.accumulate(precisions[:, ::-1], -1)[:, ::-1]
    found = np.zeros(len(THRESHOLDS))
    for i, (recall, precision) in enumerate(zip(recalls, best, strict=True)):
        places = np.searchsorted(recall, RECALLS, side="left")
        good = places < len(precision)
        found[i] = precision[places[good]].sum() / len(RECALLS)
    return found, recalls[:, -1]


def _mean(values: np.ndarray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else None


def _listed(precision: np.ndarray) -> list[float | None]:
    return [_mean(row) for row in precision]
