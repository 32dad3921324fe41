"""Decoder for outputs that are one vector of numbers per image."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxtrain.tasks.decoder import Columns, OutputDecoder
from jaxtrain.tasks.prediction import Prediction, Row, plain

# Maximum number of values per image in the console table.
NUM_SHOWN = 6


class NumbersPrediction(Prediction):
    """Predicted numbers of one image, with names.

    Args:
      columns: Name of each number.
      numbers: Predicted numbers, (len(columns),).
    """

    def __init__(self, columns: Sequence[str], numbers: np.ndarray):
        self.columns, self.numbers = columns, numbers

    def row(self) -> Row:
        return dict(zip(self.columns, map(plain, self.numbers), strict=True))

    def cells(self) -> tuple[str, ...]:
        return tuple(f"{plain(x):.4g}" for x in self.numbers[:NUM_SHOWN])


class RowDecoder(OutputDecoder):
    """Decoder for outputs (B, num_outputs), a vector of numbers per image."""

    command_options = "--out predictions.csv"

    @property
    def names(self) -> Sequence[str]:
        """Names of the output columns."""
        return [f"output_{i}" for i in range(self.facts.outputs.shape[-1])]

    def columns(self, topk: int = 1) -> Columns:
        del topk
        return dict.fromkeys(self.names, float)

    def heads(self) -> tuple[str, ...]:
        return tuple(self.names[:NUM_SHOWN])

    def num_hidden(self) -> int:
        return len(self.names[NUM_SHOWN:])

    kind: type[NumbersPrediction] = NumbersPrediction

    def values(self, outputs: Any) -> Any:
        return outputs

    def decode(self, outputs: Any, topk: int = 1) -> dict[str, Any]:
        del topk
        return {"values": self.values(outputs)}

    def prediction(
        self, decoded: Mapping[str, Any], i: int, size: tuple[int, int] | None = None
    ) -> Prediction:
        del size
        return self.kind(self.names, self.add_offset(decoded["values"][i]))
