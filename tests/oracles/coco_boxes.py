"""Makes tests/stored/coco_boxes.json: metrics of random boxes by pycocotools.

In an environment with pycocotools and NumPy:

    python tests/oracles/coco_boxes.py tests/stored/coco_boxes.json

Sides and scores are multiples of 1/4 and 1/64: float32 and float64 hold them alike, and
scores have ties.
"""

import contextlib
import importlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

IMAGES, CLASSES, TRUE, FOUND = 30, 4, 5, 12
# Seed -> factor of all sides: the smallest boxes alone, then larger ones too.
FACTORS = {0: 1, 1: 1, 2: 1, 3: 5, 4: 3}


def boxes_of(seed: int, factor: int) -> dict[str, list[Any]]:
    """Return boxes that are there, and boxes near some of them, of each image.

    Args:
      seed: Seed of the draws.
      factor: Factor of all sides.
    """
    rng = np.random.default_rng(seed)
    drawn: dict[str, list[Any]] = {"true": [], "found": []}
    for image in range(IMAGES):
        num = rng.integers(0, TRUE + 1)
        corner, side = rng.integers(0, 80, (num, 2)), rng.integers(20, 100, (num, 2))
        true = np.concatenate([corner, corner + side], 1) / 4
        kinds, crowd = rng.integers(0, CLASSES - 1, num), rng.random(num) < 0.15
        for box, kind, one in zip(true, kinds, crowd, strict=True):
            drawn["true"].append(
                [image, int(kind), bool(one), *(factor * box).tolist()]
            )
        for _ in range(rng.integers(0, FOUND + 1)):
            if num and rng.random() < 0.8:
                near = rng.integers(num)
                box = true[near] + rng.integers(-6, 7, 4) / 4
                kind = kinds[near] if rng.random() < 0.8 else rng.integers(CLASSES)
            else:
                box = np.array([0, 0, 10, 10]) + rng.integers(0, 60, 4) / 4
                kind = rng.integers(CLASSES)
            box[2:] = np.maximum(box[2:], box[:2] + 0.25)
            score = rng.integers(1, 65) / 64
            box *= factor
            drawn["found"].append([image, int(kind), float(score), *box.tolist()])
    return drawn


def to_list(boxes: list[Any], name: str) -> list[dict[str, Any]]:
    """Return boxes as COCO's files hold them; `name` is that of the third value."""
    return [
        {
            "id": i + 1,
            "image_id": image,
            "category_id": kind,
            name: int(value) if name == "iscrowd" else value,
            "bbox": [left, top, right - left, bottom - top],
            "area": (right - left) * (bottom - top),
        }
        for i, (image, kind, value, left, top, right, bottom) in enumerate(boxes)
    ]


def metrics_of(drawn: dict[str, list[Any]]) -> dict[str, Any]:
    """Return the metrics by pycocotools; -1 of a class that has no box."""
    coco, cocoeval = (
        importlib.import_module(f"pycocotools.{name}") for name in ("coco", "cocoeval")
    )
    true: Any = coco.COCO()
    true.dataset = {
        "images": [{"id": i} for i in range(IMAGES)],
        "annotations": to_list(drawn["true"], "iscrowd"),
        "categories": [{"id": i} for i in range(CLASSES)],
    }
    with contextlib.redirect_stdout(io.StringIO()):
        true.createIndex()
        found = true.loadRes(to_list(drawn["found"], "score"))
        evaluation = cocoeval.COCOeval(true, found, "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    # (thresholds, recalls, classes, areas, counts), and without recalls.
    precision = evaluation.eval["precision"][..., 2]
    recall = evaluation.eval["recall"][:, :, 0]
    stats = evaluation.stats.tolist()
    return {
        "map": stats[0],
        "map50": stats[1],
        "map75": stats[2],
        "map_small": stats[3],
        "map_medium": stats[4],
        "map_large": stats[5],
        "ar1": stats[6],
        "ar10": stats[7],
        "ar100": stats[8],
        "precision": precision.mean(1).T.tolist(),
        "recall": recall.T.tolist(),
    }


def main() -> None:
    """Write the boxes of some seeds with their metrics."""
    stored = []
    for seed, factor in FACTORS.items():
        drawn = boxes_of(seed, factor)
        stored.append({**drawn, "metrics": metrics_of(drawn)})
    Path(sys.argv[1]).write_text(json.dumps(stored) + "\n")


if __name__ == "__main__":
    main()
