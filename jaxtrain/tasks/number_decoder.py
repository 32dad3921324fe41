"""Decoders of predicted numbers, in the units of the data."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.dtypes import widen
from jaxtrain.errors import counted
from jaxtrain.tasks.array_decoder import NumbersPrediction, RowDecoder
from jaxtrain.tasks.decoder import OutputFacts
from jaxtrain.tasks.exported import ExportedArray
from jaxtrain.tasks.outputs import Readout
from jaxtrain.tasks.prediction import AnswerParts

# Lower bound of a column's range (max - min), as a fraction of the column's largest
# magnitude. Tolerances, as fractions of the range, thus exceed float32 rounding.
LEAST_SPREAD = 0.02
# Maximum number of names in a description.
MAX_DESCRIBED = 8


class NumberPrediction(NumbersPrediction):
    """Predicted numbers of one image; its JSON maps column names to numbers."""

    def json(self, topk: int) -> dict[str, Any]:
        del topk
        numbers = self.numbers.tolist()
        return {"values": dict(zip(self.columns, numbers, strict=True))}


class NumberDecoder(RowDecoder):
    """Decoder of predicted numbers in the units of the data.

    Args:
      facts: Metadata of the run: task options, classes, image shape.
      readout: Conversion of outputs to numbers.
    """

    in_units = "numbers in the units of the data"
    kind: type[NumbersPrediction] = NumberPrediction

    def __init__(self, facts: OutputFacts, readout: Readout):
        super().__init__(facts)
        self.readout = readout

    @property
    def names(self) -> Sequence[str]:
        return self.readout.columns

    def values(self, outputs: Any) -> Any:
        return self.readout.of(outputs)

    def add_offset(self, values: np.ndarray) -> np.ndarray:
        return self.readout.add_offset(values)

    def check_values(self) -> None:
        """Accept all outputs, as predictions are numbers."""

    def answer_parts(self) -> AnswerParts:
        columns = self.readout.columns
        return AnswerParts("numbers", columns, {"columns": columns})

    def exported(self, *, probabilities: bool, nms: bool) -> ExportedArray:
        super().exported(probabilities=probabilities, nms=nms)
        shift, remark = self.readout.shift, None
        if shift is not None:
            largest = max(shift, key=abs)
            remark = (
                f"float32, with a spacing of {abs(np.spacing(np.float32(largest))):g} "
                f"near {largest!r}; predict is more precise"
            )
        return ExportedArray(
            self.readout.name,
            self.readout.traced,
            scale=_spread,
            about={"output_names": self.readout.columns},
            remark=remark,
            rounds_badly=True,
        )


class RegressionDecoder(NumberDecoder):
    """Decoder of regression outputs.

    Args:
      facts: Metadata of the run: task options, classes, image shape.
      readout: Conversion of outputs to numbers.
      targets: Names of the target columns.
      distribution: Name of the loss if outputs are distribution parameters; None if
        outputs are the predicted numbers.
    """

    def __init__(
        self,
        facts: OutputFacts,
        readout: Readout,
        targets: Sequence[str],
        distribution: str | None,
    ):
        super().__init__(facts, readout)
        self.targets, self.distribution = targets, distribution

    def describe(self) -> str:
        names = ", ".join(self.targets[:MAX_DESCRIBED])
        more = ", ..." if len(self.targets) > MAX_DESCRIBED else ""
        return f"{counted(len(self.targets), 'number')}: {names}{more}"

    def mean_outputs(self, outputs: Any) -> jax.Array:
        return jnp.mean(widen(outputs), 0)

    def refuses_mean(self) -> str | None:
        if self.distribution is None:
            return None
        return (
            f"with the loss {self.distribution} its outputs are distributions, whose "
            "mixture is not the mean of the outputs"
        )


def _spread(outputs: np.ndarray) -> tuple[Any, str]:
    """Range of each column, at least `LEAST_SPREAD` times its largest magnitude.

    Columns have different units, and may be far from 0.
    """
    least = LEAST_SPREAD * np.abs(outputs).max(axis=0)
    return np.maximum(np.ptp(outputs, axis=0), least), "the spread of their column"
