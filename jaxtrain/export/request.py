"""Export requests: a model, options, and the function to export."""

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
from jaxtrain.inference.model import TrainedModel
from jaxtrain.tasks.exported import ExportedArray
from jaxtrain.weights.description import Description

# Images in the file's input format -> outputs.
Runner = Callable[[np.ndarray], np.ndarray]
# Parameters and other state, each a nested dict.
Weights = tuple[Any, Any]
HALF = {"bf16": jnp.bfloat16, "fp16": jnp.float16}


@dataclass(frozen=True, kw_only=True, eq=False)
class Request:
    """A request to export a model.

    Attributes:
      model: Model with its weights.
      precision: Compute precision of the file; outputs are float32. For int8, the
        program is traced in float32, and then quantized by the exporter.
      batch: Batch size of the file. None means any batch size.
      preprocessing: If True, the file takes uint8 pixels, and returns probabilities for
        classifiers. If False, it takes normalized images, float32, and returns logits.
      nms: Whether the file of a detection model returns the boxes after non-maximum
        suppression, rather than the boxes of all anchors.
      calibration: Images (n, H, W, C) in the file's input format, to calibrate int8
        ranges; None for other precisions.
    """

    model: TrainedModel
    precision: Precision = "fp32"
    batch: int | None = None
    preprocessing: bool = False
    nms: bool = False
    calibration: np.ndarray | None = None

    @property
    def was_rounded(self) -> bool:
        """Whether the model results from quantization-aware training."""
        return self.model.description.model.quantize is not None

    @functools.cached_property
    def exported(self) -> ExportedArray:
        """Output array of the file: its name, computation and metadata.

        Raises:
          UserError: The model has several output arrays, or `nms` is set for a model
            without boxes.
        """
        return self.model.decoder.exported(
            probabilities=self.preprocessing, nms=self.nms
        )

    @property
    def output(self) -> str:
        """Name of the output array in the file."""
        return self.exported.name

    @property
    def images(self) -> jax.ShapeDtypeStruct:
        """Shape and dtype of an input batch. The batch size may be symbolic."""
        size = self.batch or export.symbolic_shape("batch")[0]
        about = self.model.description
        if not self.preprocessing:
            return jax.ShapeDtypeStruct((size, *about.image_shape), np.float32)
        return jax.ShapeDtypeStruct((size, *about.stored_shape), about.stored_dtype)

    @functools.cached_property
    def _computing(self) -> TrainedModel:
        precision = self.precision if self.precision in HALF else "fp32"
        about = dataclasses.replace(self.model.description, precision=precision)
        return dataclasses.replace(self.model, description=about)

    def weights(self, *, round_kernels: bool = False) -> Weights:
        """Return the weights of the file as NumPy arrays.

        Args:
          round_kernels: Whether to store kernels in the compute precision, which halves
            their size. Biases and norm parameters stay in float32, as they are applied
            in float32.
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
        """Compute the output array of the file, float32 (B, ...). Traceable.

        Args:
          weights: Result of `weights`.
          images: Images in the file's input format.
          folded: Whether to fold norms into the kernels of convolutions.
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
        """Return the function (images) -> outputs to export, with constant weights.

        Args:
          folded: Whether to fold norms into the kernels of convolutions.
        """
        weights = self.weights()
        if folded:
            return lambda images: self.apply(weights, images, folded=True)
        # Casts of JAX arrays are traced. Casts of NumPy arrays happen immediately, and
        # would round a kernel before a norm is folded into it.
        return lambda images: self.apply(jax.tree.map(jnp.asarray, weights), images)

    def about(self) -> dict[str, Any]:
        """Return the JSON-serializable model description to store in the file."""
        about, images = self.model.description, self.images
        return {
            "model": about.model.name,
            "input": {
                "name": "images",
                "shape": [self.batch or "batch", *images.shape[1:]],
                "dtype": images.dtype.name,
            },
            "output": self.output,
            "precision": self.precision,
            "class_names": about.class_names,
            "box_names": None,
            "output_names": None,
            **self.exported.about,
            # Values fitted on the validation split, such as label thresholds.
            "chosen": about.chosen,
            "mean": about.mean,
            "std": about.std,
            "crop_pct": about.crop_pct,
            "interpolation": about.interpolation,
            **dataclasses.asdict(about.input),
            "crop_mode": about.crop_mode,
            "white_level": about.white_level,
            **_sliding(about),
            "origin": self.model.origin,
            "jaxtrain": about.jaxtrain,
        }


def _sliding(about: Description) -> dict[str, Any]:
    if about.sliding_size is None:
        return {}
    sliding = {"size": about.sliding_size, "overlap": OVERLAP}
    return {"sliding": sliding}
