"""What a user asks an export for."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from jaxtrain.export.program import ExportedProgram, Precision, make_program
from jaxtrain.inference.model import TrainedModel

Format = Literal["onnx", "stablehlo", "saved"]
# Images as the file takes them -> its outputs.
Runner = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, kw_only=True, eq=False)
class Request:
    """An export.

    Attributes:
      model: the weights.
      precision: of the numbers that the file computes with.
      batch: images at a time; None: any number.
      preprocessing: whether the file takes pixels and puts out probabilities.
      calibration: images (n, rows, columns, channels) as the file takes them, which
        tell the ranges for int8; None of other precisions.
    """

    model: TrainedModel
    precision: Precision = "fp32"
    batch: int | None = None
    preprocessing: bool = False
    calibration: np.ndarray | None = None

    @property
    def has_classes(self) -> bool:
        """Whether the outputs are classes, of which the likeliest counts."""
        return self.model.class_names is not None

    def program(self, *, round_kernels: bool = False) -> ExportedProgram:
        """Return the function that the file holds (see `make_program`)."""
        return make_program(
            self.model,
            self.precision,
            preprocessing=self.preprocessing,
            round_kernels=round_kernels,
        )

    def about(self) -> dict[str, Any]:
        """Return what the file says of itself, as JSON values."""
        given, program = self.model.description, self.program()
        return {
            "model": given.model.name,
            "input": {
                "name": "images",
                "shape": [self.batch or "batch", *given.image_shape],
                "dtype": program.dtype.name,
            },
            "output": program.output,
            "precision": self.precision,
            "class_names": given.class_names,
            "mean": given.mean,
            "std": given.std,
            "crop_pct": given.crop_pct,
            "interpolation": given.interpolation,
            "origin": self.model.origin,
            "jaxtrain": given.jaxtrain,
        }
