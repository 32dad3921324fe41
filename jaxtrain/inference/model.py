"""A trained model in use: images in; logits, probabilities or features out."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax
import numpy as np
from flax import nnx

from jaxtrain import own, tasks
from jaxtrain.config import ParallelConfig
from jaxtrain.data.file_kind import FileKind
from jaxtrain.data.preprocess import normalize
from jaxtrain.dtypes import widen
from jaxtrain.engine.finite import Checked, finite_rows
from jaxtrain.errors import UserError
from jaxtrain.inference import stream
from jaxtrain.inference.description import Description
from jaxtrain.inference.pixels import as_sequence, size_of
from jaxtrain.models import folding
from jaxtrain.models.head import Head
from jaxtrain.parallel import sharding
from jaxtrain.parallel.mesh import make_mesh
from jaxtrain.tasks.base import Task
from jaxtrain.tasks.decoder import OutputDecoder, OutputFacts
from jaxtrain.training import forward, precision
from jaxtrain.training.compiled import Compiled
from jaxtrain.training.precision import Policy
from jaxtrain.training.state import split_model
from jaxtrain.training.views import View, plain, sliding_windows
from jaxtrain.trees import by_path

# Images that a program takes at once; of fewer, the next power of two.
MAX_BATCH = 64
# What a program of a model is for, and what takes less memory.
PURPOSE = (
    "a batch of images",
    "give fewer at a time, such as by --batch-size, or take a smaller model",
)

Output = Literal["logits", "values", "features", "masks", "decoded"]


@dataclass(frozen=True, eq=False)
class TrainedModel:
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

    def __repr__(self) -> str:
        about = self.description
        num = len(self.class_names or ())
        puts_out = f"{num} classes" if num else f"{about.num_outputs} outputs"
        size, seen = "x".join(map(str, about.whole_shape)), f"{self.kind.noun}s"
        step = self.origin.get("step")
        at = "" if step is None else f", step {step}"
        return f"TrainedModel({about.model.name}: {size} {seen}, {puts_out}{at})"

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The names of the classes, in the order of the outputs; None: no classes."""
        return self.description.class_names

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of the images that the model takes."""
        return self.description.image_shape

    # What a user calls.

    def predict(self, images: Any) -> np.ndarray:
        """Return the probability of each class, float32 (N, classes).

        Of a model that predicts numbers: these, (N, columns), float32, or
        float64 where float32 would round their differences off.

        Args:
          images: uint8 (N, H, W, C), or (N, H, W) of the size of the model, or many of
            any kind: paths of files, their bytes, pictures of Pillow, arrays (H, W, C).
            Those of another size are resized as in an evaluation.

        Raises:
          UserError: an image cannot be read, its outputs are not finite, or the model
            knows no classes.
        """
        self.decoder.check_values()
        return self._all("values", images)

    def labels_found(self, probabilities: np.ndarray) -> np.ndarray:
        """Return which labels images are said to have, bool (N, classes).

        Args:
          probabilities: What `predict` returned, of a model of labels.

        Raises:
          UserError: the model tells no labels.
        """
        return self.decoder.labels_found(probabilities)

    def logits(self, images: Any) -> Any:
        """Return what the model puts out, float32 (N, num_outputs); see `predict`.

        A task whose outputs have other shapes has (N, ...) each, in the same tree.
        """
        return self._all("logits", images)

    def masks(self, images: Any) -> np.ndarray:
        """Return the class of each pixel, uint8 (N, H, W), as the model sees images.

        Args:
          images: Images of any kind, as `predict` takes them.

        Raises:
          UserError: the model tells no classes of pixels.
        """
        return self._all("masks", images)

    def find(self, images: Any) -> list[Any]:
        """Return the boxes that a model finds in each image; see `predict`.

        Each has `boxes`, `scores` and `classes`, the best first: left, top, right and
        bottom in pixels of the image, float64 (n, 4), and (n,) each.

        Raises:
          UserError: an image cannot be read, or the model finds no boxes.
        """
        self.decoder.check_boxes(
            f"task = {self.description.task!r} finds no boxes: ask for predict, or "
            "logits"
        )
        given = as_sequence(images, self.description.whole_shape)
        decoded, decoder = self._all("decoded", given), self.decoder
        return [
            decoder.prediction(decoded, i, size_of(image)).boxes
            for i, image in enumerate(given)
        ]

    def features(self, images: Any) -> np.ndarray:
        """Return what the last layer gets, float32 (N, features); see `predict`.

        Of a model of embeddings: these, as `predict` returns them.
        """
        return self._all("features", images)

    # What commands are made of.

    @functools.cached_property
    def mesh(self) -> jax.sharding.Mesh:
        return make_mesh(ParallelConfig())

    @property
    def kind(self) -> FileKind:
        """The kind of files that it is used on."""
        return self.description.input.files

    @property
    def task(self) -> type[Task]:
        """The class of the task; `Task` itself for a user's own."""
        return tasks.kind(self.description.task)

    @functools.cached_property
    def decoder(self) -> OutputDecoder:
        """The decoder of the outputs."""
        about = self.description
        facts = OutputFacts(
            task=about.task,
            options=about.task_options,
            class_names=about.class_names,
            column_names=about.column_names,
            image_shape=about.image_shape,
            outputs=self.outputs,
            chosen=about.chosen,
            fit=about.fit,
        )
        return self.task.decoder(facts)

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

    def features_of(
        self, params: Any, model_state: Any, images: jax.Array
    ) -> jax.Array:
        """Return what the last layer gets of normalised images. May be traced.

        Raises:
          UserError: the last layer is no `Head`.
        """
        if self.decoder.embeds:
            return self.decoder.values(self.forward(params, model_state, images))

        def bare(weights: Any, images: jax.Array) -> Any:
            model = nnx.merge(self.graphdef, *weights, copy=True)
            model.eval()
            # In the order of the pieces: auxiliary heads come before.
            layers = [getattr(model, n) for piece in model.pieces for n in piece.names]
            heads = [x for _, x in nnx.iter_graph(layers) if isinstance(x, Head)]
            if not heads:
                raise UserError(
                    f"model.name = {self.description.model.name!r} has no "
                    "jaxtrain.models.head.Head, whose inputs would be the features"
                )
            heads[-1].bare = True
            return model(images)

        weights = params, model_state
        with jax.default_matmul_precision(self.policy.products):
            if folding.pays(self.mesh):
                return widen(folding.fold_norms(bare, weights, images))
            return widen(bare(weights, images))

    def run(self, pixels: np.ndarray, output: Output) -> Checked:
        """Start to compute an output of a batch; the result comes while others go on.

        Args:
          pixels: Images, uint8 (n, H, W, C), n at most `MAX_BATCH` or the number of
            devices.
          output: What is wanted of them.

        Returns:
          `Checked` float32 (n or more, ...): rows beyond n are of padding.
        """
        return self.start(self._jitted[output], pixels, self.batch_size(len(pixels)))

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
        return program(*self.placed, sharding.put_batch(self.mesh, padded, size))

    def compiled(self, function: Callable[[Any, Any, jax.Array], Checked]) -> Any:
        """Return the program of `(params, model_state, normalised images) -> Checked`.

        It is compiled for each size of a batch that it is started with.
        """

        def run(params: Any, model_state: Any, pixels: jax.Array) -> Any:
            return function(params, model_state, self.prepare(pixels[0]))

        everywhere = sharding.replicated(self.mesh)
        return Compiled(run, *PURPOSE, together=False, out_shardings=everywhere)

    def shapes(self, function: Callable[[Any, Any, jax.Array], Any]) -> Any:
        """Return the shapes of what a function makes of one normalised image."""
        about = self.description
        pixels = jax.ShapeDtypeStruct((1, *about.whole_shape), about.stored_dtype)
        images = jax.eval_shape(self.prepare, pixels)
        return jax.eval_shape(function, self.params, self.model_state, images)

    def share(self, num: int) -> int:
        """Return the smallest size of a batch from `num` on that the devices share."""
        devices = sharding.num_batch_shards(self.mesh)
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

    def _all(self, output: Output, given: Any) -> Any:
        images = as_sequence(given, self.description.whole_shape)
        if not len(images):
            shapes = self.shapes(self._functions[output]).values
            return jax.tree.map(lambda x: np.zeros((0, *x.shape[1:]), x.dtype), shapes)
        loaded = stream.load(
            images.__getitem__,
            len(images),
            self.description,
            self.in_windows(MAX_BATCH),
        )
        batches = stream.refuse_errors(
            stream.computed(loaded, lambda pixels: self.run(pixels, output))
        )
        found = [batch.found for batch in batches]
        whole = jax.tree.map(lambda *parts: np.concatenate(parts), *found)
        return self.decoder.whole(whole) if output == "values" else whole

    @functools.cached_property
    def placed(self) -> tuple[Any, Any]:
        """The parameters and the other state, on all devices."""
        where = sharding.replicated(self.mesh)
        return jax.device_put((self.params, self.model_state), where)

    @functools.cached_property
    def _functions(self) -> dict[str, Callable[..., Checked]]:
        def checked(values_of: Callable[[Any], Any]) -> Callable[..., Checked]:
            def function(*arguments: Any) -> Checked:
                outputs = self.forward(*arguments)
                values = values_of(outputs)
                return Checked(values, finite_rows((outputs, values)))

            return function

        def features(*arguments: Any) -> Checked:
            values = self.features_of(*arguments)
            return Checked(values, finite_rows(values))

        return {
            "masks": checked(self.decoder.mask),
            "decoded": checked(self.decoder.decode),
            "logits": checked(lambda outputs: outputs),
            "values": checked(self.decoder.values),
            "features": features,
        }

    @functools.cached_property
    def _jitted(self) -> dict[str, Any]:
        return {name: self.compiled(f) for name, f in self._functions.items()}


def abstract_weights(description: Description) -> tuple[Any, Any]:
    """Return shapes and dtypes of the parameters and the other state of a model."""
    return split_model(description.abstract)[1:]


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
      UserError: they are of another model, or its task is of a plug-in that is missing.
    """
    if about.task not in tasks.TASKS and not own.is_own(about.task):
        raise UserError(
            f"{where}: task = {about.task!r} is none of {', '.join(tasks.TASKS)}: "
            "install the package whose plug-in has it"
        )
    wanted = abstract_weights(about)
    found, kinds = by_path((params, model_state)), by_path(wanted)
    fitted = {}
    for path in kinds.keys() & found.keys():
        array, kind = np.asarray(found[path]), kinds[path]
        if array.ndim == kind.ndim + 1 and path.startswith("1/"):
            array = array.mean(-2, dtype=np.promote_types(array.dtype, np.float32))
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
    tree = jax.tree.structure(wanted)
    fitted_params, fitted_state = tree.unflatten(fitted[path] for path in kinds)
    return TrainedModel(about, fitted_params, fitted_state, origin)
