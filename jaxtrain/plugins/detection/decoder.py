"""Decoder of detector outputs for predictions and exported models."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.errors import counted
from jaxtrain.plugins.detection.found_boxes import (
    SHOWN_SCORE,
    Finder,
    FoundBoxes,
    boxes_of,
)
from jaxtrain.tasks.decoder import Columns, OutputDecoder, OutputFacts
from jaxtrain.tasks.exported import ExportedArray, Pairing
from jaxtrain.tasks.pictures import labelled_boxes
from jaxtrain.tasks.prediction import SEPARATOR, AnswerParts, Prediction, Row

# Output of a model exported without NMS, (batch, locations, 4 + classes): left, top,
# right and bottom in pixels, then the class scores.
BOXES = "boxes_and_scores"
# Output of a model exported with NMS, (batch, keep, 6): left, top, right, bottom, score
# and class, in descending order of score; padding has score 0 and class -1.
FOUND = "detections"
# Maximum difference between matching detections of two backends, in each column, in
# units of the column's scale.
PAIR_DIFFERENCE = 0.05


class BoxPrediction(Prediction):
    """Predicted boxes of one image.

    Args:
      names: Names of the classes.
      boxes: Boxes in pixels of the image.
      size: Height and width of the image.
    """

    def __init__(
        self, names: tuple[str, ...], boxes: FoundBoxes, size: tuple[int, int]
    ):
        self.names, self.boxes, self.size = names, boxes, size

    def row(self) -> Row:
        labels = [self.names[kind] for kind in self.boxes.above(SHOWN_SCORE).classes]
        return {"num_boxes": len(labels), "labels": SEPARATOR.join(labels)}

    def cells(self) -> tuple[str, ...]:
        row = self.row()
        return str(row["num_boxes"]), "\n".join(row["labels"].split(SEPARATOR))

    def json(self, topk: int) -> dict[str, Any]:
        del topk
        boxes = [
            {
                "box": [round(x, 3) for x in box],
                "index": kind,
                "label": self.names[kind],
                "score": score,
            }
            for box, score, kind in zip(*(x.tolist() for x in self.boxes), strict=True)
        ]
        return {"size": list(self.size), "boxes": boxes}

    def draw(self, image: np.ndarray) -> np.ndarray:
        found = self.boxes.above(SHOWN_SCORE)
        texts = [
            f"{self.names[kind]} {score:.2f}"
            for kind, score in zip(found.classes, found.scores, strict=True)
        ]
        return labelled_boxes(image, found.boxes, found.classes, texts)


class BoxDecoder(OutputDecoder):
    """Decoder of the output maps of a detector.

    Args:
      facts: Metadata of the run: task options, classes and image shape.
      finder: Functions that compute boxes from the outputs.
    """

    in_units = "boxes in pixels"
    draws = True
    command_options = "--pictures pictures --coco boxes.json"

    def __init__(self, facts: OutputFacts, finder: Finder):
        super().__init__(facts)
        self.finder = finder

    def describe(self) -> str:
        return f"boxes of {counted(len(self.finder.names), 'class', 'classes')}"

    def columns(self, topk: int = 1) -> Columns:
        del topk
        return {"num_boxes": int, "labels": str}

    def heads(self) -> tuple[str, ...]:
        return "boxes", "labels"

    def decode(self, outputs: Any, topk: int = 1) -> dict[str, Any]:
        del topk
        return self.finder.of(outputs)

    def prediction(
        self, decoded: Mapping[str, Any], i: int, size: tuple[int, int] | None = None
    ) -> Prediction:
        seen = self.facts.image_shape[:2] if size is None else size
        found = boxes_of(decoded, i, self.facts, size)
        return BoxPrediction(self.finder.names, found, seen)

    def refuses_mean(self) -> str:
        return "the boxes of several models cannot be averaged without matching them"

    def answer_parts(self) -> AnswerParts:
        names = self.finder.names
        return AnswerParts("classes of boxes", names, {"num_classes": len(names)})

    def check_boxes(self, message: str) -> None:
        del message

    def exported(self, *, probabilities: bool, nms: bool) -> ExportedArray:
        del probabilities
        about = {"box_names": self.finder.names}
        if not nms:
            return ExportedArray(
                BOXES, self._candidates, scale=_scale_of_candidates, about=about
            )
        side = max(self.facts.image_shape[:2])

        def scale(outputs: np.ndarray) -> tuple[np.ndarray, str]:
            # The scale of class indices is 1, so a wrong class exceeds the tolerance.
            return np.array([*[side] * 4, 1, 1], outputs.dtype), "the image, or of 1"

        return ExportedArray(
            FOUND,
            self._detections,
            scale=scale,
            about=about,
            pairing=Pairing(_match_detections, "the same box for {:.1%}"),
            limits=self.finder.limits,
        )

    def _candidates(self, outputs: Any) -> jax.Array:
        return jnp.concatenate(self.finder.candidates(outputs), -1)

    def _detections(self, outputs: Any) -> jax.Array:
        found = self.finder.of(outputs)
        rest = (found[name][..., None] for name in ("scores", "classes"))
        parts = found["boxes"], *rest
        return jnp.concatenate([x.astype(jnp.float32) for x in parts], -1)


def _scale_of_candidates(outputs: np.ndarray) -> tuple[np.ndarray, str]:
    """Return the scale per column: the largest coordinate for boxes, 1 for scores."""
    scale = np.ones(outputs.shape[-1], outputs.dtype)
    scale[:4] = np.abs(outputs)[..., :4].max()
    return scale, "the image, or of 1"


def _match_detections(
    detections: np.ndarray, reference: np.ndarray, scale: np.ndarray
) -> tuple[np.ndarray, float]:
    """Reorder detections like a reference, and return the fraction of matches.

    Backends may break ties of scores or IoUs differently.

    Args:
      detections: Detections to reorder, (n, keep, 6).
      reference: Reference detections, (n, keep, 6).
      scale: Scale of each column, (6,).

    Returns:
      The nearest detection for each reference detection, or the reference detection
      itself if the difference is above `PAIR_DIFFERENCE`, (n, keep, 6); and the
      fraction of matches.
    """
    away = np.abs((detections[:, None] - reference[:, :, None]) / scale).max(-1)
    nearest = away.argmin(-1)
    present = reference[..., 4] > 0
    found = np.take_along_axis(away, nearest[..., None], -1)[..., 0] <= PAIR_DIFFERENCE
    paired = np.take_along_axis(detections, nearest[..., None], 1)
    more = np.maximum((detections[..., 4] > 0).sum() - present.sum(), 0)
    share = (found & present).sum() / max(1, present.sum() + more)
    share = share if present.any() or more else 1.0
    return np.where((found & present)[..., None], paired, reference), float(share)
