"""Trained models, with methods that return predictions, logits or features."""

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

# Maximum batch size. Smaller batches are padded to a size that is a power of two.
MAX_BATCH = 64
Output = Literal["logits", "values", "features", "masks", "decoded"]


@dataclass(frozen=True, eq=False)
class TrainedModel(PlacedModel):
    """A trained model: architecture, weights, and methods to predict on images."""

    def __repr__(self) -> str:
        about = self.description
        num = len(self.class_names or ())
        outputs = f"{num} classes" if num else f"{about.num_outputs} outputs"
        size, inputs = "x".join(map(str, about.whole_shape)), f"{self.kind.noun}s"
        step = self.origin.get("step")
        at = "" if step is None else f", step {step}"
        return f"TrainedModel({about.model.name}: {size} {inputs}, {outputs}{at})"

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Class names in the order of the outputs; None without classes."""
        return self.description.class_names

    # Public methods.

    def predict(self, images: Any) -> np.ndarray:
        """Return class probabilities, float32 (N, classes), or regression outputs.

        Regression outputs, (N, columns), are float32, or float64 if float32 cannot
        represent the differences between targets.

        Args:
          images: uint8 (N, H, W, C) or (N, H, W) of the model's size, or a sequence of
            paths, encoded bytes, Pillow images or arrays (H, W, C). Images of another
            size are resized as in evaluation.

        Raises:
          UserError: An image is unreadable, its outputs are not finite, or the task is
            neither classification nor regression.
        """
        self.decoder.check_values()
        return self._all("values", images)

    def labels_found(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the predicted labels, bool (N, classes).

        Args:
          probabilities: Result of `predict` of a multi-label model.

        Raises:
          UserError: The model is not a multi-label model.
        """
        return self.decoder.labels_found(probabilities)

    def logits(self, images: Any) -> Any:
        """Return the raw outputs, float32 (N, num_outputs).

        For a task with structured outputs, return a pytree of arrays (N, ...).

        Args:
          images: Images of any type; see `predict`.
        """
        return self._all("logits", images)

    def masks(self, images: Any) -> np.ndarray:
        """Return the class of each pixel, uint8 (N, H, W), at the model's resolution.

        Args:
          images: Images of any type; see `predict`.

        Raises:
          UserError: The model does not segment images.
        """
        return self._all("masks", images)

    def find(self, images: Any) -> list[Any]:
        """Return the detected boxes of each image, sorted by descending score.

        The result for an image has the attributes `boxes`, float64 (n, 4), with left,
        top, right and bottom in pixels of the original image; `scores`, (n,); and
        `classes`, (n,).

        Args:
          images: Images of any type; see `predict`.

        Raises:
          UserError: An image is unreadable, or the model does not detect objects.
        """
        self.decoder.check_boxes(
            f"task = {self.description.task!r} does not detect boxes: call predict or "
            "logits"
        )
        given = as_sequence(images, self.description.whole_shape)
        decoded, decoder = self._all("decoded", given), self.decoder
        return [
            decoder.prediction(decoded, i, size_of(image)).boxes
            for i, image in enumerate(given)
        ]

    def features(self, images: Any) -> np.ndarray:
        """Return the inputs of the last layer, float32 (N, features).

        For embedding models, return the embeddings, as `predict` does.

        Args:
          images: Images of any type; see `predict`.
        """
        return self._all("features", images)

    # Methods that only the commands of jaxtrain call.

    @property
    def kind(self) -> FileKind:
        """Kind of files that the model takes, such as images."""
        return self.description.input.files

    @property
    def task(self) -> type[Task]:
        """Class of the task; the base `Task` for custom tasks without `--trust`."""
        return tasks.kind(self.description.task)

    @functools.cached_property
    def decoder(self) -> OutputDecoder:
        """Decoder of the model's outputs."""
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
        """Return the inputs of the last layer, or embeddings. Traceable.

        Raises:
          UserError: The last layer is not a `Head`.
        """
        if self.decoder.embeds:
            return self.decoder.values(self.forward(params, model_state, images))
        return self.head_inputs(params, model_state, images)

    def run(self, pixels: np.ndarray, output: Output) -> Checked:
        """Dispatch a batch without waiting for the result.

        Args:
          pixels: Images, uint8 (n, H, W, C), with n at most `MAX_BATCH` or the number
            of devices, whichever is larger.
          output: Name of the output to compute.

        Returns:
          Results, float32 (padded batch size, ...); only the first n are valid.
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
        results = [batch.results for batch in batches]
        concatenated = jax.tree.map(lambda *parts: np.concatenate(parts), *results)
        return (
            self.decoder.add_offset(concatenated)
            if output == "values"
            else concatenated
        )

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
    """Create a model from a description and weights.

    Grouped batch-norm statistics are averaged over the groups, as in evaluation.

    Args:
      about: Architecture, task and preprocessing.
      params: Parameters, nested dicts.
      model_state: Other state, nested dicts.
      origin: Origin of the weights (`PlacedModel.origin`).
      where: Name of the weights, for messages.

    Raises:
      UserError: The weights do not fit the architecture, or the task's plug-in is
        missing.
    """
    fitted = fit_arrays(about, params, model_state, where)
    return TrainedModel(about, *fitted, origin)
