"""Decoders of class logits and multi-label logits."""

import copy
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from jaxtrain.errors import UserError, counted
from jaxtrain.tasks.decoder import Columns, OutputDecoder, OutputFacts
from jaxtrain.tasks.prediction import SEPARATOR, AnswerParts, Prediction, Row, plain


class ClassPrediction(Prediction):
    """Most likely classes of one image.

    Args:
      names: Names of the classes.
      index: Indices of the most likely classes, best first, (topk,).
      probabilities: Probabilities of all classes, (classes,).
    """

    def __init__(
        self, names: tuple[str, ...], index: np.ndarray, probabilities: np.ndarray
    ):
        self.names, self.index, self.probabilities = names, index, probabilities

    def row(self) -> Row:
        row: Row = {}
        for end, index in zip(_endings(len(self.index)), self.index, strict=True):
            row[f"index{end}"] = int(index)
            row[f"label{end}"] = self.names[index]
            row[f"prob{end}"] = plain(self.probabilities[index])
        return row

    def cells(self) -> tuple[str, ...]:
        probabilities = (plain(self.probabilities[i]) for i in self.index)
        labels = "\n".join(self.names[i] for i in self.index)
        return labels, "\n".join(f"{x:.4f}" for x in probabilities)

    def json(self, topk: int) -> dict[str, Any]:
        best = np.argsort(-self.probabilities, kind="stable")[:topk]
        classes = [
            {
                "index": int(i),
                "label": self.names[i],
                "prob": float(self.probabilities[i]),
            }
            for i in best
        ]
        return {"classes": classes}

    def caption(self) -> str:
        number = self.index[0]
        # The probability comes first, because long names are truncated.
        return f"{100 * self.probabilities[number]:.1f}% {self.names[number]}"


class ClassDecoder(OutputDecoder):
    """Decoder of class logits, (B, classes)."""

    command_options = "--out predictions.csv"
    temperature: float | None = None

    def __init__(self, facts: OutputFacts):
        super().__init__(facts)
        assert facts.class_names is not None
        self.names = facts.class_names

    def describe(self) -> str:
        return f"{len(self.names)} classes"

    def columns(self, topk: int = 1) -> Columns:
        kinds = ("index", int), ("label", str), ("prob", float)
        return {f"{name}{end}": kind for name, kind in kinds for end in _endings(topk)}

    def heads(self) -> tuple[str, ...]:
        return "label", "prob"

    def decode(self, outputs: Any, topk: int = 1) -> dict[str, Any]:
        # Ranked by logits, as probabilities may be equal after rounding.
        _, index = jax.lax.top_k(outputs, topk)
        if self.temperature is not None:
            outputs = outputs / self.temperature
        return {"index": index, "probabilities": self.probabilities(outputs)}

    def prediction(
        self, decoded: Mapping[str, Any], i: int, size: tuple[int, int] | None = None
    ) -> Prediction:
        del size
        index, probabilities = decoded["index"][i], decoded["probabilities"][i]
        return ClassPrediction(self.names, index, probabilities)

    def mean_outputs(self, outputs: jax.Array) -> jax.Array:
        from jaxtrain.tasks.mean_outputs import mean_softmax

        return mean_softmax(outputs)

    def answer_parts(self) -> AnswerParts:
        num = len(self.names)
        return AnswerParts("classes", self.names, {"num_classes": num}, num)

    def calibrated(self, temperature: float | None) -> OutputDecoder:
        super().calibrated(temperature)
        decoder = copy.copy(self)
        decoder.temperature = temperature
        return decoder

    def check_classes(self, option: str) -> None:
        del option

    def check_topk(self, topk: int) -> None:
        super().check_topk(topk)
        if topk > len(self.names):
            raise UserError(
                f"--topk {topk}: the model has {len(self.names)} classes; give at most "
                f"{len(self.names)}"
            )


class LabelPrediction(ClassPrediction):
    """Multi-label prediction of one image.

    Args:
      likeliest: Prediction with the most likely labels.
      predicted: Mask of the predicted labels, bool (labels,).
    """

    def __init__(self, likeliest: ClassPrediction, predicted: np.ndarray):
        super().__init__(likeliest.names, likeliest.index, likeliest.probabilities)
        named = zip(self.names, predicted, strict=True)
        self.labels = [name for name, is_predicted in named if is_predicted]

    def row(self) -> Row:
        named = zip(self.names, self.probabilities, strict=True)
        probabilities = {f"prob_{name}": plain(x) for name, x in named}
        return {"labels": SEPARATOR.join(self.labels), **probabilities}

    def cells(self) -> tuple[str, ...]:
        named = zip(self.names, self.probabilities, strict=True)
        probabilities = "\n".join(f"{name} {plain(x):.4f}" for name, x in named)
        return "\n".join(self.labels), probabilities

    def json(self, topk: int) -> dict[str, Any]:
        return {"labels": self.labels, **super().json(topk)}


class LabelDecoder(ClassDecoder):
    """Decoder of multi-label logits, (B, labels).

    Args:
      facts: Metadata of the run: task options, classes, image shape.
      thresholds: Probability threshold of each label, (labels,).
    """

    def __init__(self, facts: OutputFacts, thresholds: np.ndarray):
        super().__init__(facts)
        self.thresholds = thresholds

    def describe(self) -> str:
        return counted(len(self.names), "label")

    def probabilities(self, outputs: Any) -> jax.Array:
        return jax.nn.sigmoid(outputs)

    def mean_outputs(self, outputs: jax.Array) -> jax.Array:
        from jaxtrain.tasks.mean_outputs import mean_sigmoid

        return mean_sigmoid(outputs)

    def columns(self, topk: int = 1) -> Columns:
        del topk
        probabilities = [f"prob_{name}" for name in self.names]
        return {"labels": str, **dict.fromkeys(probabilities, float)}

    def prediction(
        self, decoded: Mapping[str, Any], i: int, size: tuple[int, int] | None = None
    ) -> Prediction:
        likeliest = super().prediction(decoded, i, size)
        assert isinstance(likeliest, ClassPrediction)
        predicted = self.labels_found(likeliest.probabilities)
        return LabelPrediction(likeliest, predicted)

    def labels_found(self, probabilities: np.ndarray) -> np.ndarray:
        return probabilities >= self.thresholds

    def answer_parts(self) -> AnswerParts:
        return super().answer_parts()._replace(kind="labels")

    def check_ranks(self, option: str) -> None:
        raise UserError(
            f"{option}: task = {self.facts.task!r} predicts independent labels, not a "
            f"ranking of classes; leave {option} out"
        )


def _endings(topk: int) -> list[str]:
    return [""] if topk == 1 else [f"_{i}" for i in range(topk)]
