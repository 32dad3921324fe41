"""Models with weights on the devices, and functions that apply them."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from flax import nnx

from jaxtrain.config import ParallelConfig
from jaxtrain.data.preprocess import normalize
from jaxtrain.dtypes import widen
from jaxtrain.errors import UserError
from jaxtrain.evaluation.finite import Checked
from jaxtrain.models import folding
from jaxtrain.parallel import data_sharding
from jaxtrain.parallel.mesh import has_accelerators, make_mesh
from jaxtrain.training import forward, precision
from jaxtrain.training.compiled import Compiled
from jaxtrain.training.precision import Policy
from jaxtrain.training.views import View, plain, sliding_windows
from jaxtrain.weights.description import Description

# For out-of-memory messages: the purpose of the programs, and how to save memory.
PURPOSE = (
    "a batch of images",
    "give fewer images at a time (--batch-size), or use a smaller model",
)


@dataclass(frozen=True, eq=False)
class PlacedModel:
    """A model with its weights on all devices of this process.

    Attributes:
      description: Architecture, task and preprocessing.
      params: Parameters, nested dicts.
      model_state: Other state, nested dicts; batch-norm statistics are (channels,).
      origin: Origin of the weights: `step`, `run` (the run's id) and, if not loaded
        from a run, `weights` (a digest).
    """

    description: Description
    params: Any
    model_state: Any
    origin: dict[str, Any]

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of the model's input."""
        return self.description.image_shape

    @functools.cached_property
    def mesh(self) -> jax.sharding.Mesh:
        return make_mesh(ParallelConfig())

    @functools.cached_property
    def policy(self) -> Policy:
        return precision.parse(self.description.precision)

    @functools.cached_property
    def graphdef(self) -> Any:
        return nnx.graphdef(self.description.abstract)

    @functools.cached_property
    def outputs(self) -> Any:
        """Pytree with shapes and dtypes of the outputs for a batch of one image."""
        return self.shapes(self.forward)

    def prepare(self, pixels: jax.Array) -> jax.Array:
        """Normalize stored images, uint8 (B, H, W, C), as in training. Traceable.

        Inputs other than images are converted to images first.
        """
        about, dtype = self.description, self.policy.compute_dtype
        return normalize(about.input.to_images(pixels), about.mean, about.std, dtype)

    def forward(self, params: Any, model_state: Any, images: jax.Array) -> Any:
        """Return the outputs for normalized images, float32. Traceable.

        For images larger than the model's input (`sliding_size`), the outputs are the
        mean over sliding windows.
        """

        def apply(images: jax.Array) -> Any:
            return self._forward(params, model_state, images, self.mesh)

        return self.view(apply, images, self.image_shape[:2])

    @property
    def view(self) -> View:
        """Test-time view of images: identity, or sliding windows."""
        return plain if self.description.sliding_size is None else sliding_windows

    def portable_forward(self, params: Any, model_state: Any, images: jax.Array) -> Any:
        """Return the outputs for images of the model's size, float32. Traceable.

        The traced program does not depend on the devices.
        """

        return self._forward(params, model_state, images, None)

    def folded_forward(self, params: Any, model_state: Any, images: jax.Array) -> Any:
        """Like `portable_forward`, but with batch norms folded into convolutions.

        If the weights are concrete (not traced), the folded weights are constants of
        the traced program.
        """

        def apply(weights: tuple[Any, Any], images: jax.Array) -> Any:
            return forward.predict(self.graphdef, *weights, images)

        weights = params, model_state
        with jax.default_matmul_precision(self.policy.products):
            return widen(folding.fold_norms(apply, weights, images))

    def _forward(self, params: Any, model_state: Any, images: Any, mesh: Any) -> Any:
        apply = functools.partial(forward.predict, self.graphdef, mesh=mesh)
        with jax.default_matmul_precision(self.policy.products):
            return widen(apply(params, model_state, images))

    def head_inputs(
        self, params: Any, model_state: Any, images: jax.Array
    ) -> jax.Array:
        """Return the inputs of the last layer for normalized images. Traceable.

        Raises:
          UserError: The model has no last linear layer.
        """

        def bare(weights: Any, images: jax.Array) -> Any:
            model = nnx.merge(self.graphdef, *weights, copy=True)
            model.eval()
            if not model.drop_head():
                raise UserError(
                    f"model.name = {self.description.model.name!r} has no features, as "
                    "the last layer is not linear: use a model that ends with "
                    "jaxtrain.models.head.Head (nnx.Linear or nn.Dense in a plain Flax "
                    "module)"
                )
            return model(images)

        weights = params, model_state
        with jax.default_matmul_precision(self.policy.products):
            if has_accelerators(self.mesh):
                return widen(folding.fold_norms(bare, weights, images))
            return widen(bare(weights, images))

    def start(self, program: Any, pixels: np.ndarray, size: int) -> Any:
        """Dispatch a `compiled` program on a batch.

        Args:
          program: Result of `compiled`.
          pixels: Images, uint8 (n, H, W, C).
          size: Padded batch size, at least n and a result of `share`.

        Returns:
          Outputs of the program, (size, ...); only the first n are valid.
        """
        padded = np.zeros((1, size, *pixels.shape[1:]), pixels.dtype)
        padded[0, : len(pixels)] = pixels
        return program(*self.placed, data_sharding.put_batch(self.mesh, padded, size))

    def compiled(self, function: Callable[[Any, Any, jax.Array], Checked]) -> Any:
        """Return a jitted function (params, model_state, pixels) that calls `function`.

        It is compiled once per batch size.

        Args:
          function: Function (params, model_state, normalized images) -> `Checked`.
        """

        def run(params: Any, model_state: Any, pixels: jax.Array) -> Any:
            return function(params, model_state, self.prepare(pixels[0]))

        everywhere = data_sharding.replicated(self.mesh)
        return Compiled(run, *PURPOSE, together=False, out_shardings=everywhere)

    def shapes(self, function: Callable[[Any, Any, jax.Array], Any]) -> Any:
        """Return the output shapes and dtypes of a function for a batch of one image.

        Args:
          function: Function (params, model_state, normalized images) -> outputs.
        """
        about = self.description
        pixels = jax.ShapeDtypeStruct((1, *about.whole_shape), about.stored_dtype)
        images = jax.eval_shape(self.prepare, pixels)
        return jax.eval_shape(function, self.params, self.model_state, images)

    def share(self, num: int) -> int:
        """Round a batch size up to a multiple of the number of batch shards."""
        devices = data_sharding.num_batch_shards(self.mesh)
        return -(-num // devices) * devices

    def in_windows(self, num: int) -> int:
        """Return the number of images that have `num` windows in total, at least 1."""
        pixels, window = (
            math.prod(shape[:2])
            for shape in (self.description.whole_shape, self.description.stored_shape)
        )
        return max(1, num * window // pixels)

    def batch_size(self, num: int) -> int:
        """Round a batch size up to a power of two, then apply `share`."""
        return self.share(1 << max(0, num - 1).bit_length())

    @functools.cached_property
    def placed(self) -> tuple[Any, Any]:
        """Parameters and other state, replicated on all devices."""
        where = data_sharding.replicated(self.mesh)
        return jax.device_put((self.params, self.model_state), where)
