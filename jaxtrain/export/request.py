"""What a user asks an export for, and the function of images that it makes."""

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from jaxtrain.data.window_grid import OVERLAP
from jaxtrain.export import Precision
from jaxtrain.inference.description import Description
from jaxtrain.inference.model import TrainedModel
from jaxtrain.tasks.exported import ExportedArray

# Images as the file takes them -> its outputs.
Runner = Callable[[np.ndarray], np.ndarray]
# Parameters and all other state, nested dicts each.
Weights = tuple[Any, Any]
HALF = {"bf16": jnp.bfloat16, "fp16": jnp.float16}


@dataclass(frozen=True, kw_only=True, eq=False)
class Request:
    """An export.

    Attributes:
      model: the weights.
      precision: of the numbers that the file computes with; it takes and puts out
        float32. int8 begins as fp32.
      batch: images at a time; None: any number.
      preprocessing: whether the file takes uint8 pixels, and puts out probabilities if
        there are classes; else images as `TrainedModel.prepare` has them, and logits.
      nms: whether the file of a model of boxes puts out what is found, not the boxes
        of all places.
      calibration: images (n, rows, columns, channels) as the file takes them, which
        tell the ranges for int8; None of other precisions.
    """

    model: TrainedModel
    precision: Precision = "fp32"
    batch: int | None = None
    preprocessing: bool = False
    nms: bool = False
    calibration: np.ndarray | None = None

    @property
    def was_rounded(self) -> bool:
        """Whether the model was trained with the integers that int8 has."""
        return self.model.description.model.quantize is not None

    @functools.cached_property
    def exported(self) -> ExportedArray:
        """The array that the file puts out.

        Raises:
          UserError: The outputs have no such form.
        """
        return self.model.decoder.exported(
            probabilities=self.preprocessing, nms=self.nms
        )

    @property
    def output(self) -> str:
        """Name of the array that the file puts out."""
        return self.exported.name

    @property
    def images(self) -> jax.ShapeDtypeStruct:
        """Shape and dtype of a batch, whose size may be symbolic."""
        size = self.batch or export.symbolic_shape("batch")[0]
        about = self.model.description
        if not self.preprocessing:
            return jax.ShapeDtypeStruct((size, *about.image_shape), np.float32)
        return jax.ShapeDtypeStruct((size, *about.stored_shape), about.stored_dtype)

    @functools.cached_property
    def _computing(self) -> TrainedModel:
        """The model in the precision that is asked for."""
        precision = self.precision if self.precision in HALF else "fp32"
        about = dataclasses.replace(self.model.description, precision=precision)
        return dataclasses.replace(self.model, description=about)

    def weights(self, *, round_kernels: bool = False) -> Weights:
        """Return the weights as the file has them, in NumPy.

        Args:
          round_kernels: hold them in the precision, and so in half the space. Biases
            and what norms have stay in float32: they are few, and computed with in it.
        """
        half = HALF.get(self.precision)

        def stored(x: Any) -> np.ndarray:
            if not jnp.issubdtype(x.dtype, jnp.floating):
                return np.asarray(x)
            kernel = round_kernels and x.ndim > 1 and half is not None
            return np.asarray(x).astype(half if kernel else np.float32)

        return jax.tree.map(stored, (self.model.params, self.model.model_state))

    def apply(
        self, weights: Weights, images: jax.Array, *, folded: bool = False
    ) -> jax.Array:
        """Return the outputs of images, float32, those of `exported`.

        Args:
          weights: What `weights` returned.
          images: Images as the file takes them.
          folded: Whether norms are folded into the kernels of convolutions.
        """
        model = self._computing
        if self.preprocessing:
            images = model.prepare(images)
        forward = model.folded_forward if folded else model.portable_forward
        logits = forward(*weights, images.astype(model.policy.compute_dtype))
        if self.exported.rounds_badly:
            logits = jax.lax.optimization_barrier(logits)
        return self.exported.of(logits)

    def function(self, *, folded: bool = False) -> Callable[..., jax.Array]:
        """Return the function of images that holds its weights (see `weights`)."""
        weights = self.weights()
        if folded:
            return lambda images: self.apply(weights, images, folded=True)
        # As arrays of JAX, whose casts are traced: those of NumPy are done at once, and
        # a kernel would be rounded before a norm is folded into it.
        return lambda images: self.apply(jax.tree.map(jnp.asarray, weights), images)

    def about(self) -> dict[str, Any]:
        """Return what the file says of itself, as JSON values."""
        given, images = self.model.description, self.images
        return {
            "model": given.model.name,
            "input": {
                "name": "images",
                "shape": [self.batch or "batch", *images.shape[1:]],
                "dtype": images.dtype.name,
            },
            "output": self.output,
            "precision": self.precision,
            "class_names": given.class_names,
            "box_names": None,
            "output_names": None,
            **self.exported.about,
            # Such as the threshold of each label.
            "chosen": given.chosen,
            "mean": given.mean,
            "std": given.std,
            "crop_pct": given.crop_pct,
            "interpolation": given.interpolation,
            **dataclasses.asdict(given.input),
            "crop_mode": given.crop_mode,
            "white_level": given.white_level,
            **_sliding(given),
            "origin": self.model.origin,
            "jaxtrain": given.jaxtrain,
        }


def _sliding(about: Description) -> dict[str, Any]:
    """Return how windows are laid over whole images, which the file itself does not."""
    if about.sliding_size is None:
        return {}
    told = {"size": about.sliding_size, "overlap": OVERLAP}
    return {"sliding": told}
