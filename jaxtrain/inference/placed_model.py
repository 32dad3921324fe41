"""The weights of a model on the devices, and the functions that apply them."""

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

# What a program of a model is for, and what takes less memory.
PURPOSE = (
    "a batch of images",
    "give fewer at a time, such as by --batch-size, or take a smaller model",
)


@dataclass(frozen=True, eq=False)
class PlacedModel:
    """A model with its weights, on all devices of this process.

    Attributes:
      description: what it is.
      params: parameters, nested dicts.
      model_state: All other state, such as batch-norm statistics of (channels,) each,
        nested dicts.
      origin: where its weights come from: `step`, `run`, its id, and digest of weights.
    """

    description: Description
    params: Any
    model_state: Any
    origin: dict[str, Any]

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of the images that the model takes."""
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
        """The shapes of the outputs for one image, with a dim of 1 before."""
        return self.shapes(self.forward)

    def prepare(self, pixels: jax.Array) -> jax.Array:
        """Normalise uint8 (B, H, W, C), as the model sees images. May be traced.

        Of other inputs the images that they become are normalised.
        """
        about, dtype = self.description, self.policy.compute_dtype
        return normalize(about.input.to_images(pixels), about.mean, about.std, dtype)

    def forward(self, params: Any, model_state: Any, images: jax.Array) -> Any:
        """Return the logits of normalised images, float32. May be traced.

        Of images that are larger than the model takes, as its description says, they
        are the mean over windows.
        """

        def apply(images: jax.Array) -> Any:
            return self._forward(params, model_state, images, self.mesh)

        return self.view(apply, images, self.image_shape[:2])

    @property
    def view(self) -> View:
        """What the model is shown of an image."""
        return plain if self.description.sliding_size is None else sliding_windows

    def portable_forward(self, params: Any, model_state: Any, images: jax.Array) -> Any:
        """Return the logits of images that the model takes, float32. May be traced.

        The program is the same on any device.
        """

        return self._forward(params, model_state, images, None)

    def folded_forward(self, params: Any, model_state: Any, images: jax.Array) -> Any:
        """Return what `portable_forward` does, with norms folded into convolutions.

        Of weights that are no tracers the program holds the folded ones.
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
        """Return what the last layer gets of normalised images. May be traced.

        Raises:
          UserError: The model has no last linear layer.
        """

        def bare(weights: Any, images: jax.Array) -> Any:
            model = nnx.merge(self.graphdef, *weights, copy=True)
            model.eval()
            if not model.drop_head():
                raise UserError(
                    f"model.name = {self.description.model.name!r} has no last linear "
                    "layer (jaxtrain.models.head.Head, or of a plain Flax module "
                    "nnx.Linear or nn.Dense), whose inputs would be the features"
                )
            return model(images)

        weights = params, model_state
        with jax.default_matmul_precision(self.policy.products):
            if has_accelerators(self.mesh):
                return widen(folding.fold_norms(bare, weights, images))
            return widen(bare(weights, images))

    def start(self, program: Any, pixels: np.ndarray, size: int) -> Any:
        """Start one of the `compiled` programs on a batch.

        Args:
          program: Program that `compiled` returned.
          pixels: Images, uint8 (n, H, W, C).
          size: Number of images that the program gets, n or more (see `share`).

        Returns:
          What the program makes of the batch, with rows of padding beyond n.
        """
        padded = np.zeros((1, size, *pixels.shape[1:]), pixels.dtype)
        padded[0, : len(pixels)] = pixels
        return program(*self.placed, data_sharding.put_batch(self.mesh, padded, size))

    def compiled(self, function: Callable[[Any, Any, jax.Array], Checked]) -> Any:
        """Return the program of `(params, model_state, normalised images) -> Checked`.

        It is compiled for each size of a batch that it is started with.
        """

        def run(params: Any, model_state: Any, pixels: jax.Array) -> Any:
            return function(params, model_state, self.prepare(pixels[0]))

        everywhere = data_sharding.replicated(self.mesh)
        return Compiled(run, *PURPOSE, together=False, out_shardings=everywhere)

    def shapes(self, function: Callable[[Any, Any, jax.Array], Any]) -> Any:
        """Return the shapes of what a function makes of one normalised image."""
        about = self.description
        pixels = jax.ShapeDtypeStruct((1, *about.whole_shape), about.stored_dtype)
        images = jax.eval_shape(self.prepare, pixels)
        return jax.eval_shape(function, self.params, self.model_state, images)

    def share(self, num: int) -> int:
        """Return the smallest size of a batch from `num` on that the devices share."""
        devices = data_sharding.num_batch_shards(self.mesh)
        return -(-num // devices) * devices

    def in_windows(self, num: int) -> int:
        """Return how many whole images have so many windows, 1 or more.

        Those of a batch are in memory together.
        """
        pixels, window = (
            math.prod(shape[:2])
            for shape in (self.description.whole_shape, self.description.stored_shape)
        )
        return max(1, num * window // pixels)

    def batch_size(self, num: int) -> int:
        """Return the size of the batch that a program is compiled for."""
        return self.share(1 << max(0, num - 1).bit_length())

    @functools.cached_property
    def placed(self) -> tuple[Any, Any]:
        """The parameters and the other state, on all devices."""
        where = data_sharding.replicated(self.mesh)
        return jax.device_put((self.params, self.model_state), where)
