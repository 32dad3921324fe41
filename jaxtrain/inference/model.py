"""A trained model in use: images in; logits, probabilities or features out."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax
import numpy as np

from jaxtrain import tasks
from jaxtrain.data.file_kind import FileKind
from jaxtrain.evaluation.finite import Checked, finite_rows
from jaxtrain.inference import stream
from jaxtrain.inference.pixels import as_sequence, size_of
from jaxtrain.inference.placed_model import PlacedModel
from jaxtrain.tasks.base import Task
from jaxtrain.tasks.decoder import OutputDecoder, OutputFacts
from jaxtrain.weights.description import Description
from jaxtrain.weights.stored import fit_arrays

# Images that a program takes at once; of fewer, the next power of two.
MAX_BATCH = 64
Output = Literal["logits", "values", "features", "masks", "decoded"]


@dataclass(frozen=True, eq=False)
class TrainedModel(PlacedModel):
    """A model with its weights, as people use it: images in, predictions out."""

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

    @property
    def kind(self) -> FileKind:
        """The kind of files that it is used on."""
        return self.description.input.files

    @property
    def task(self) -> type[Task]:
        """The class of the task; `Task` itself for a user's own without `--trust`."""
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

    def features_of(
        self, params: Any, model_state: Any, images: jax.Array
    ) -> jax.Array:
        """Return what the last layer gets, or embeddings. May be traced.

        Raises:
          UserError: the last layer is no `Head`.
        """
        if self.decoder.embeds:
            return self.decoder.values(self.forward(params, model_state, images))
        return self.head_inputs(params, model_state, images)

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
    fitted = fit_arrays(about, params, model_state, where)
    return TrainedModel(about, *fitted, origin)
