"""Compiled prediction function of the server."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxtrain.evaluation.finite import Checked, finite_rows
from jaxtrain.inference.model import TrainedModel

# Images, uint8 (n, H, W, C) -> decoded outputs, whose batch axis may be padded.
Program = Callable[[np.ndarray], Checked]


def make_program(model: TrainedModel, temperature: float | None = None) -> Program:
    """Create the prediction function of the server, compiled once per batch size.

    Args:
      model: Model to serve.
      temperature: Divisor of the logits, for classifiers. Defaults to 1.
    """
    if temperature is None:
        return lambda pixels: model.run(pixels, "decoded")

    decoder = model.decoder.calibrated(temperature)

    def calibrated(params: Any, model_state: Any, images: jax.Array) -> Checked:
        logits = model.forward(params, model_state, images)
        return Checked(decoder.decode(logits), finite_rows(logits))

    program = model.compiled(calibrated)
    return lambda pixels: model.start(program, pixels, model.batch_size(len(pixels)))
