"""Program of the server: pixels of a batch to the numbers that an answer is made of."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxtrain.engine.finite import Checked, finite_rows
from jaxtrain.inference.model import TrainedModel

# Images, uint8 (n, H, W, C) -> float32 (n or more, ...): the rest is padding.
Program = Callable[[np.ndarray], Checked]


def make_program(model: TrainedModel, temperature: float | None = None) -> Program:
    """Return the program, which compiles once for each size of a batch.

    Args:
      model: Model whose decoder has `answer_parts`.
      temperature: Divisor of the logits of classes of whole images; None means 1.
    """
    if temperature is None:
        return lambda pixels: model.run(pixels, "decoded")

    decoder = model.decoder.calibrated(temperature)

    def calibrated(params: Any, model_state: Any, images: jax.Array) -> Checked:
        logits = model.forward(params, model_state, images)
        return Checked(decoder.decode(logits), finite_rows(logits))

    program = model.compiled(calibrated)
    return lambda pixels: model.start(program, pixels, model.batch_size(len(pixels)))
