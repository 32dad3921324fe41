"""Program of the server: pixels of a batch to the numbers that an answer is made of."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxtrain.evaluation.finite import Checked, finite_rows
from jaxtrain.inference.model import Output, TrainedModel

# Images, uint8 (n, H, W, C) -> float32 (n or more, ...): the rest is padding.
Program = Callable[[np.ndarray], Checked]


def output_of(model: TrainedModel) -> Output:
    """Return the name of the output that an answer is made of."""
    if model.puts_out_masks:
        return "masks"
    if model.finder is not None:
        return "found"
    return "probabilities" if model.readout is None else "values"


def make_program(model: TrainedModel, temperature: float | None = None) -> Program:
    """Return the program, which compiles once for each size of a batch.

    Args:
      model: Model with classes of whole images or of pixels, a `readout`, or a
        `finder`.
      temperature: Divisor of the logits of classes of whole images; None means 1.
    """
    if temperature is None:
        output = output_of(model)
        return lambda pixels: model.run(pixels, output)

    def calibrated(params: Any, model_state: Any, images: jax.Array) -> Checked:
        logits = model.forward(params, model_state, images)
        return Checked(
            model.task.probabilities(logits / temperature), finite_rows(logits)
        )

    program = model.compiled(calibrated)
    return lambda pixels: model.start(program, pixels, model.batch_size(len(pixels)))
