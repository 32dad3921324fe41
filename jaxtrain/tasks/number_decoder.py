"""Numbers in the units of the data."""

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

# Of a column, over its largest: 1e-5 of it is three roundings of float32.
LEAST_SPREAD = 0.02
# Numbers that a description names.
MAX_DESCRIBED = 8


class NumberPrediction(NumbersPrediction):
    """Numbers of one image, each of which a server answers by its name."""

    def json(self, topk: int) -> dict[str, Any]:
        del topk
        numbers = self.numbers.tolist()
        return {"values": dict(zip(self.columns, numbers, strict=True))}


class NumberDecoder(RowDecoder):
    """Decoder of numbers that a readout makes of the outputs.

    Args:
      facts: Recorded facts of the run.
      readout: Columns of numbers.
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

    def whole(self, values: np.ndarray) -> np.ndarray:
        return self.readout.whole(values)

    def check_values(self) -> None:
        """Accept: numbers are values."""

    def answer_parts(self) -> AnswerParts:
        columns = self.readout.columns
        return AnswerParts("numbers", columns, {"columns": columns})

    def exported(self, *, probabilities: bool, nms: bool) -> ExportedArray:
        super().exported(probabilities=probabilities, nms=nms)
        shift, remark = self.readout.shift, None
        if shift is not None:
            largest = max(shift, key=abs)
            remark = (
                f"float32, which has numbers {abs(np.spacing(np.float32(largest))):g} "
                f"apart near {largest!r}; predict has finer ones"
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
    """Decoder of numbers that are learnt by a loss.

    Args:
      facts: Recorded facts of the run.
      readout: Columns of numbers.
      targets: Names of the numbers that are learnt.
      distribution: Loss whose outputs are the parameters of a distribution; None: the
        outputs are the numbers.
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
            f"with the loss {self.distribution} it puts out a distribution, and the "
            "mean of the outputs of several models is not that of the mixture"
        )


def _spread(outputs: np.ndarray) -> tuple[Any, str]:
    """Return the spread of each column, but no less than float32 can tell apart.

    Columns have units of their own, and may lie far from 0.
    """
    least = LEAST_SPREAD * np.abs(outputs).max(axis=0)
    return np.maximum(np.ptp(outputs, axis=0), least), "the spread of their column"
