"""ONNX: the model as operators that other runtimes know."""

from collections.abc import Callable
from typing import Any

import jax

from jaxtrain.export.emitter.lower import lower
from jaxtrain.export.emitter.simplify import simplify
from jaxtrain.export.emitter.trace import trace
from jaxtrain.export.emitter.write import OPSET, Writer


def emit(
    function: Callable[[jax.Array], jax.Array],
    image_shape: tuple[int, int, int],
    *,
    dtype: Any,
    batch: int | None = None,
    opset: int = OPSET,
    names: tuple[str, str] = ("images", "logits"),
    metadata: dict[str, str] | None = None,
) -> Any:
    """Return a function of images as an ONNX model.

    Args:
      function: (batch, rows, columns, channels) -> (batch, outputs).
      image_shape: rows, columns and channels.
      dtype: of the images.
      batch: images at a time; None: any number.
      opset: version of the operators.
      names: of input and output.
      metadata: what the file says of itself.

    Raises:
      UserError: the function uses what the export does not know.
    """
    images, output = trace(function, image_shape, dtype, batch)
    writer = Writer(opset)
    lower(images, simplify(output), names, writer)
    return writer.model(metadata or {})
