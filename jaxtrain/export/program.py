"""What is exported: a function of images, in the precision that is asked for."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.inference.model import TrainedModel

# Of the numbers that the file computes with; it takes and puts out float32.
Precision = Literal["fp32", "bf16", "fp16", "int8"]
HALF = {"bf16": jnp.bfloat16, "fp16": jnp.float16}


@dataclass(frozen=True, eq=False)
class ExportedProgram:
    """A model as a function.

    Attributes:
      apply: (params, model_state, images) -> float32 (batch, outputs).
      params: of the model, nested dicts.
      model_state: All other state of the model, nested dicts.
      image_shape: rows, columns and channels.
      dtype: of the images: uint8 pixels, or float32 as `TrainedModel.prepare` has them.
      output: what the numbers are called.
    """

    apply: Callable[[Any, Any, jax.Array], jax.Array]
    params: Any
    model_state: Any
    image_shape: tuple[int, int, int]
    dtype: np.dtype
    output: Literal["logits", "probabilities"]

    def __call__(self, images: jax.Array) -> jax.Array:
        """Return the outputs of images (batch, rows, columns, channels)."""
        # As arrays of JAX, whose casts are traced: those of NumPy are done at once, and
        # a kernel would be rounded before a norm is folded into it.
        params = jax.tree.map(jnp.asarray, self.params)
        model_state = jax.tree.map(jnp.asarray, self.model_state)
        return self.apply(params, model_state, images)

    def inputs(self, batch: Any) -> jax.ShapeDtypeStruct:
        """Return the shape of a batch, whose size may be symbolic."""
        return jax.ShapeDtypeStruct((batch, *self.image_shape), self.dtype)


def make_program(
    model: TrainedModel,
    precision: Precision,
    *,
    preprocessing: bool,
    round_kernels: bool = False,
) -> ExportedProgram:
    """Return the function to export.

    Args:
      model: the weights, as they were trained.
      precision: of the numbers; int8 begins as fp32.
      preprocessing: uint8 pixels in, and probabilities out if there are classes.
      round_kernels: hold them in the precision, and so in half the space. Biases and
        what norms have stay in float32: they are few, and computed with in it.
    """
    half = HALF.get(precision)
    about = dataclasses.replace(
        model.description, precision="fp32" if half is None else precision
    )
    there = dataclasses.replace(model, description=about)
    probabilities = preprocessing and about.class_names is not None

    def apply(params: Any, model_state: Any, images: jax.Array) -> jax.Array:
        if preprocessing:
            images = there.prepare(images)
        images = images.astype(there.policy.compute_dtype)
        logits = there.forward(params, model_state, images)
        return model.task.probabilities(logits) if probabilities else logits

    def stored(x: Any) -> np.ndarray:
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return np.asarray(x)
        kernel = round_kernels and x.ndim > 1 and half is not None
        return np.asarray(x).astype(half if kernel else np.float32)

    return ExportedProgram(
        apply,
        jax.tree.map(stored, model.params),
        jax.tree.map(stored, model.model_state),
        about.image_shape,
        np.dtype(np.uint8 if preprocessing else np.float32),
        "probabilities" if probabilities else "logits",
    )
