"""A trained model in use: images in; logits, probabilities or features out."""

import functools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import jax
import numpy as np
from flax import nnx

from jaxtrain.checkpoints.digest import flatten, name
from jaxtrain.config import ParallelConfig
from jaxtrain.data import ahead
from jaxtrain.data.augment.normalize import normalize
from jaxtrain.data.files import UnreadableError
from jaxtrain.data.image_files import shown
from jaxtrain.dtypes import widen
from jaxtrain.errors import UserError
from jaxtrain.inference.description import Description
from jaxtrain.inference.pixels import as_sequence, to_pixels
from jaxtrain.models.head import Head
from jaxtrain.parallel import sharding
from jaxtrain.parallel.mesh import make_mesh
from jaxtrain.training import precision, step
from jaxtrain.training.precision import Policy
from jaxtrain.training.state import split_model

# Images that a program takes at once; of fewer, the next power of two.
MAX_BATCH = 64

Output = Literal["logits", "probabilities", "features"]


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A model with its weights, on all devices of this process.

    Attributes:
      description: what it is.
      params: parameters, nested dicts.
      model_state: batch-norm statistics of (channels,) each, nested dicts.
      origin: where its weights come from: `step`, and digests of run and weights.
    """

    description: Description
    params: Any
    model_state: Any
    origin: dict[str, Any]

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The names of the classes, in the order of the outputs; None: no classes."""
        return self.description.class_names

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of the images that the model sees."""
        return self.description.image_shape

    # What a user calls.

    def predict(self, images: Any) -> np.ndarray:
        """Return the probability of each class, float32 (N, classes).

        Args:
          images: uint8 (N, H, W, C), or many of any kind: paths of files, their bytes,
            pictures of Pillow, arrays (H, W, C). Those of another size are resized as
            in an evaluation.

        Raises:
          UserError: an image cannot be read, or the model knows no classes.
        """
        if self.class_names is None:
            raise UserError(
                f"task = {self.description.task!r} has no classes, and so no "
                "probabilities: ask for its logits"
            )
        return self._all("probabilities", images)

    def logits(self, images: Any) -> np.ndarray:
        """Return what the model puts out, float32 (N, num_outputs); see `predict`."""
        return self._all("logits", images)

    def features(self, images: Any) -> np.ndarray:
        """Return what the last layer gets, float32 (N, features); see `predict`."""
        return self._all("features", images)

    # What commands are made of.

    @functools.cached_property
    def mesh(self) -> jax.sharding.Mesh:
        return make_mesh(ParallelConfig())

    @functools.cached_property
    def policy(self) -> Policy:
        return precision.parse(self.description.precision)

    @functools.cached_property
    def graphdef(self) -> Any:
        return nnx.graphdef(self.description.blueprint().abstract())

    def prepare(self, pixels: jax.Array) -> jax.Array:
        """Normalise uint8 (B, H, W, C), as the model sees images. May be traced."""
        about = self.description
        return normalize(pixels, about.mean, about.std, self.policy.compute_dtype)

    def forward(self, params: Any, model_state: Any, images: jax.Array) -> jax.Array:
        """Return the logits of normalised images, float32. May be traced."""
        with jax.default_matmul_precision(self.policy.products):
            return widen(step.predict(self.graphdef, params, model_state, images))

    def features_of(
        self, params: Any, model_state: Any, images: jax.Array
    ) -> jax.Array:
        """Return what the last layer gets of normalised images. May be traced.

        Raises:
          UserError: the last layer is no `Head`.
        """
        model = nnx.merge(self.graphdef, params, model_state, copy=True)
        model.eval()
        heads = [x for _, x in nnx.iter_graph(model) if isinstance(x, Head)]
        if not heads:
            raise UserError(
                f"model.name = {self.description.model.name!r} has no "
                "jaxtrain.models.head.Head, whose inputs would be the features"
            )
        heads[-1].bare = True
        with jax.default_matmul_precision(self.policy.products):
            return widen(model(images))

    def run(self, pixels: np.ndarray, output: Output) -> jax.Array:
        """Start to compute an output of a batch; the result comes while others go on.

        Args:
          pixels: uint8 (n, H, W, C), n at most `MAX_BATCH` or the number of devices.
          output: what is wanted.

        Returns:
          float32 (n or more, ...): rows beyond n are of padding.
        """
        size = self.batch_size(len(pixels))
        padded = np.zeros((1, size, *pixels.shape[1:]), np.uint8)
        padded[0, : len(pixels)] = pixels
        placed = sharding.put_batch(self.mesh, padded, size)
        params, model_state = self._placed
        return self._jitted[output](params, model_state, placed)

    def batch_size(self, num: int) -> int:
        """Return the size of the batch that a program is compiled for."""
        size = 1 << max(0, num - 1).bit_length()
        devices = sharding.num_batch_shards(self.mesh)
        return -(-size // devices) * devices

    def _all(self, output: Output, given: Any) -> np.ndarray:
        images = as_sequence(given)
        if not len(images):
            width = jax.eval_shape(self._jitted[output], *self._example()).shape[1:]
            return np.zeros((0, *width), np.float32)
        found = []
        for num, result in self._started(output, images):
            found.append(np.asarray(result)[:num])
        return np.concatenate(found)

    def _started(self, output: Output, images: Any) -> Iterator[tuple[int, jax.Array]]:
        """Yield the sizes and the outputs of batches; images are read ahead."""
        about = self.description

        def read(start: int) -> np.ndarray:
            some = images[start : start + MAX_BATCH]
            return np.stack([self._pixels(start + i, x) for i, x in enumerate(some)])

        starts = range(0, len(images), MAX_BATCH)
        last = None
        for pixels in ahead.by_threads(read, starts, ahead.READ_THREADS):
            assert pixels.shape[1:] == about.image_shape
            result = self.run(pixels, output)
            if last is not None:
                yield last
            last = len(pixels), result
        if last is not None:
            yield last

    def _pixels(self, index: int, image: Any) -> np.ndarray:
        try:
            return to_pixels(image, self.image_shape, self.description.fit)
        except UnreadableError as error:
            is_path = isinstance(image, str | os.PathLike)
            name = shown(os.fspath(image)) if is_path else f"image {index}"
            raise UserError(f"{name} is unreadable: {error}") from None

    @functools.cached_property
    def _placed(self) -> tuple[Any, Any]:
        where = sharding.replicated(self.mesh)
        return jax.device_put((self.params, self.model_state), where)

    @functools.cached_property
    def _jitted(self) -> dict[str, Callable[..., jax.Array]]:
        def over_pixels(function: Any) -> Any:
            def run(params: Any, model_state: Any, pixels: jax.Array) -> jax.Array:
                return function(params, model_state, self.prepare(pixels[0]))

            return jax.jit(run, out_shardings=sharding.replicated(self.mesh))

        def probabilities(*arguments: Any) -> jax.Array:
            return jax.nn.softmax(self.forward(*arguments), axis=-1)

        functions = {
            "logits": self.forward,
            "probabilities": probabilities,
            "features": self.features_of,
        }
        return {name: over_pixels(function) for name, function in functions.items()}

    def _example(self) -> tuple[Any, Any, Any]:
        pixels = jax.ShapeDtypeStruct((1, 1, *self.image_shape), np.uint8)
        return self.params, self.model_state, pixels


def abstract_weights(description: Description) -> tuple[Any, Any]:
    """Return shapes and dtypes of the parameters and the other state of a model."""
    return split_model(description.blueprint().abstract())[1:]


def make_model(
    about: Description,
    params: Any,
    model_state: Any,
    origin: dict[str, Any],
    where: str,
) -> TrainedModel:
    """Return a model with such weights, which must be those that it has.

    Statistics of several groups of batch norm become their means, as an evaluation
    takes them.

    Raises:
      UserError: they are of another model.
    """
    wanted = abstract_weights(about)
    found = {name(path): x for path, x in flatten((params, model_state))}
    kinds = {name(path): x for path, x in flatten(wanted)}
    fitted = {}
    for path in kinds.keys() & found.keys():
        array, kind = np.asarray(found[path]), kinds[path]
        if array.ndim == kind.ndim + 1 and path.startswith("1/"):
            array = array.mean(0, dtype=np.promote_types(array.dtype, np.float32))
        if array.shape == kind.shape:
            fitted[path] = array.astype(kind.dtype)
    differing = sorted((kinds.keys() | found.keys()) - fitted.keys())
    if differing:
        first = differing[0].partition("/")[2]
        raise UserError(
            f"{where} does not fit model.name = {about.model.name!r}: {first} and "
            f"{len(differing) - 1} more arrays are missing or have other shapes; the "
            "code of the model has changed since it was trained"
        )
    paths, tree = jax.tree_util.tree_flatten_with_path(wanted)
    fitted_params, fitted_state = tree.unflatten(fitted[name(p)] for p, _ in paths)
    return TrainedModel(about, fitted_params, fitted_state, origin)
