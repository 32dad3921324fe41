"""Predictions of segmentation models: one class per pixel."""

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxtrain.plugins.segmentation import class_maps
from jaxtrain.plugins.segmentation.class_maps import SHARE
from jaxtrain.tasks.array_decoder import NumbersPrediction, RowDecoder
from jaxtrain.tasks.decoder import OutputFacts
from jaxtrain.tasks.mean_outputs import mean_softmax
from jaxtrain.tasks.prediction import AnswerParts, Prediction

# `pixel_agreement` excludes classes with a smaller fraction of the pixels, because
# rounding alone may change most of their pixels.
RARE = 1e-3


class MaskPrediction(NumbersPrediction):
    """Predicted mask of one image.

    Args:
      columns: Column names of `shares` in output tables.
      shares: Fraction of pixels of each class, (classes,).
      mask: Class of each pixel at the model's input size, uint8 (rows, columns).
      names: Names of the classes.
    """

    def __init__(
        self,
        columns: Sequence[str],
        shares: np.ndarray,
        mask: np.ndarray,
        names: Sequence[str],
    ):
        super().__init__(columns, shares)
        self.mask, self.names = mask, names

    def json(self, topk: int) -> dict[str, Any]:
        """JSON values: the mask as base64 PNG, and the `topk` most frequent classes."""
        counts = np.bincount(self.mask.ravel(), minlength=len(self.names))
        order = np.argsort(-counts, kind="stable")[:topk]
        file = io.BytesIO()
        class_maps.in_colours(self.mask).save(file, "PNG", compress_level=1)
        return {
            "size": [*self.mask.shape],
            "mask_png": base64.b64encode(file.getvalue()).decode(),
            "classes": [
                {
                    "index": i,
                    "label": self.names[i],
                    "share": counts[i].item() / self.mask.size,
                }
                for i in order.tolist()
                if counts[i]
            ],
        }


class MaskDecoder(RowDecoder):
    """Decoder of segmentation logits, (B, H, W, classes).

    Args:
      facts: Properties of the outputs, recorded with the model. Must have class names.
    """

    logits_name = "mask_logits"
    command_options = "--masks masks"
    agrees = "on average {:.1%} of the pixels of a class are unchanged"

    def __init__(self, facts: OutputFacts):
        super().__init__(facts)
        assert facts.class_names is not None
        self.class_names = facts.class_names

    @property
    def names(self) -> Sequence[str]:
        return [f"{SHARE}{name}" for name in self.class_names]

    def describe(self) -> str:
        return f"{len(self.class_names)} classes of pixels"

    def values(self, outputs: Any) -> jax.Array:
        return self.probabilities(outputs)

    def decode(self, outputs: Any, topk: int = 1) -> dict[str, Any]:
        del topk
        return {"shares": class_maps.shares(outputs), "mask": self.mask(outputs)}

    def prediction(
        self, decoded: Mapping[str, Any], i: int, size: tuple[int, int] | None = None
    ) -> Prediction:
        del size
        shares, mask = decoded["shares"][i], decoded["mask"][i]
        return MaskPrediction(self.names, shares, mask, self.class_names)

    def mean_outputs(self, outputs: jax.Array) -> jax.Array:
        return mean_softmax(outputs)

    def answer_parts(self) -> AnswerParts:
        num = len(self.class_names)
        return AnswerParts("classes", self.class_names, {"num_classes": num}, num)

    def mask(self, outputs: Any) -> jax.Array:
        return outputs.argmax(-1).astype(np.uint8)

    def agreement(self, ours: np.ndarray, theirs: np.ndarray) -> float:
        """Agreement of the logits of two models (see `pixel_agreement`)."""
        return pixel_agreement(ours, theirs)


def pixel_agreement(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Fraction of pixels for which two models predict the same class.

    The fraction is computed per class of the reference model, then averaged over the
    classes, so that a dominant class does not hide errors of rare classes.

    Args:
      ours: Logits of a model, (N, H, W, classes).
      theirs: Logits of the reference model, same shape.
    """
    classes = theirs.argmax(-1).ravel()
    same = ours.argmax(-1).ravel() == classes
    pixels = np.bincount(classes)
    kept = np.bincount(classes, same, len(pixels))
    common = pixels >= max(1, RARE * len(classes))
    return float((kept[common] / pixels[common]).mean())
