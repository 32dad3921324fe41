"""Metrics of boxes, equal to those of pycocotools (tests/oracles/coco_boxes.py)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxtrain.plugins.detection import box_metrics

STORED = Path(__file__).parents[2] / "stored" / "coco_boxes.json"
NUM_IMAGES = 30
# Areas of the boxes of each stored set.
AREAS_OF = [*[["small"]] * 3, ["small", "medium", "large"], ["small", "medium"]]


def in_arrays(boxes: list[Any]) -> dict[str, np.ndarray]:
    """Return listed boxes padded, (images, most of an image, ...)."""
    most = max(np.bincount([row[0] for row in boxes]))
    arrays = {
        "boxes": np.zeros((NUM_IMAGES, most, 4), np.float32),
        "classes": np.full((NUM_IMAGES, most), -1, np.int32),
        "value": np.zeros((NUM_IMAGES, most), np.float32),
    }
    places = np.zeros(NUM_IMAGES, int)
    for image, kind, value, *box in boxes:
        here = image, places[image]
        arrays["boxes"][here], arrays["classes"][here] = box, kind
        arrays["value"][here] = value
        places[image] += 1
    return arrays


@pytest.mark.parametrize("number", range(5))
def test_metrics_are_those_of_pycocotools(number: int) -> None:
    stored = json.loads(STORED.read_text())[number]
    found, true = in_arrays(stored["found"]), in_arrays(stored["true"])
    kept = {
        "found": {
            "boxes": found["boxes"],
            "classes": found["classes"],
            "scores": found["value"],
        },
        "true": {
            "boxes": true["boxes"],
            "classes": true["classes"],
            "crowd": true["value"] > 0,
        },
    }
    expected = stored["metrics"]
    metrics = box_metrics.metrics(lambda outputs, target: {})
    for name in box_metrics.KNOWN:
        value = metrics[name].value(kept, NUM_IMAGES)
        wanted = (
            None if expected[name] < 0 else pytest.approx(expected[name], abs=1e-12)
        )
        assert value == wanted, name
    # Of the areas that are drawn, some boxes of each are there.
    assert all(expected[f"map_{name}"] > 0 for name in AREAS_OF[number])
    by_class = box_metrics.evaluate(kept["found"], kept["true"])
    for name in ("precision", "recall"):
        wanted = np.array(expected[name])
        wanted[wanted < 0] = np.nan
        np.testing.assert_allclose(getattr(by_class, name), wanted, atol=1e-12)
    assert metrics["class_ap"].value(kept, NUM_IMAGES)[-1] is None
    assert metrics["class_boxes"].value(kept, NUM_IMAGES)[-1] == 0


def test_nothing_found_and_nothing_there() -> None:
    empty = {"boxes": np.zeros((2, 3, 4)), "classes": np.full((2, 3), -1)}
    found = {**empty, "scores": np.zeros((2, 3))}
    true = {**empty, "crowd": np.zeros((2, 3), bool)}
    assert box_metrics.evaluate(found, true).mean(slice(None)) is None
    true["classes"] = np.zeros((2, 3), int)
    assert box_metrics.evaluate(found, true).mean(slice(None)) == 0
