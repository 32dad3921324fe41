"""Base class of output decoders, for tables, server responses and exported files."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import numpy as np

from jaxtrain.errors import UserError
from jaxtrain.tasks.prediction import AnswerParts, Prediction

if TYPE_CHECKING:
    from jaxtrain.data.fit import Fit
    from jaxtrain.tasks.exported import ExportedArray

Columns = Mapping[str, type]


@dataclass(frozen=True, kw_only=True, eq=False)
class OutputFacts:
    """Metadata of a run that its output decoder needs.

    Attributes:
      task: Name of the task, for messages.
      options: Options of the task.
      class_names: `Task.class_names` of the run.
      column_names: `Task.column_names` of the run.
      image_shape: Height, width and channels of the model's input images.
      outputs: Abstract outputs for one image, (1, ...) each, a pytree of
        `jax.ShapeDtypeStruct`.
      chosen: Values fitted on the validation split (`Task.choose`).
      fit: Resizing of an image to `image_shape`; None for no resizing.
    """

    task: str
    options: Mapping[str, Any]
    class_names: tuple[str, ...] | None
    column_names: tuple[str, ...] | None
    image_shape: tuple[int, int, int]
    outputs: Any
    chosen: Mapping[str, Any]
    fit: "Fit | None" = None

    def in_file(self, points: np.ndarray, size: tuple[int, int]) -> np.ndarray:
        """Convert points in the model's input image to points in the image file.

        Args:
          points: Points (..., 2) as (x, y), in pixels; may be outside of the image.
          size: Height and width of the image file.
        """
        rows, columns, _ = self.image_shape
        height, width = size
        left, top, right, bottom = 0.0, 0.0, float(width), float(height)
        if rows == columns and self.fit is not None:
            left, top, right, bottom = self.fit.centre_box(height, width, rows)
        scale = np.array([(right - left) / columns, (bottom - top) / rows])
        return points * scale + (left, top)

    @property
    def is_row(self) -> bool:
        """Whether the outputs of an image are a single vector."""
        return len(getattr(self.outputs, "shape", ())) == 2


class OutputDecoder:
    """Base class of output decoders; by default, `predict` saves only raw outputs.

    Args:
      facts: Metadata of the run: task options, classes, image shape.

    Attributes:
      logits_name: Name of the raw outputs in an exported file.
      in_units: None if int8 is precise enough for the outputs; else a description of
        the outputs, for messages.
      command_options: Options of `predict` to suggest after a run.
      draws: Whether predictions can be drawn on images (`Prediction.draw`).
      embeds: Whether the features of an image are the result of `values`, rather than
        the inputs of the last layer.
      agrees: Format string for the result of `agreement`, in messages.
    """

    logits_name: ClassVar[str] = "logits"
    in_units: ClassVar[str | None] = None
    draws: ClassVar[bool] = False
    command_options: ClassVar[str] = "--outputs outputs"
    embeds: ClassVar[bool] = False
    agrees: ClassVar[str] = "the same class for {:.1%}"

    def __init__(self, facts: OutputFacts):
        self.facts = facts

    def describe(self) -> str:
        """Short description of the outputs."""
        num = sum(x.shape[-1] for x in jax.tree.leaves(self.facts.outputs))
        return f"{num} outputs"

    # Table that `predict` writes, and the shorter table on the console.

    def columns(self, topk: int = 1) -> Columns:
        """Types of the columns of the `predict` table, by name; {} for no table."""
        del topk
        return {}

    def heads(self) -> tuple[str, ...]:
        """Column headers of the console table, after the file name."""
        return ()

    def num_hidden(self) -> int:
        """Number of values per image that the console table omits."""
        return 0

    # Conversion of model outputs to predictions.

    def probabilities(self, outputs: Any) -> jax.Array:
        """Compute class probabilities, (..., classes). Traceable.

        Args:
          outputs: Logits of shape (..., classes).
        """
        return jax.nn.softmax(outputs)

    def decode(self, outputs: Any, topk: int = 1) -> dict[str, Any]:
        """Decode outputs to arrays by name, (B, ...) each. Traceable."""
        del outputs, topk
        return {}

    def prediction(
        self, decoded: Mapping[str, Any], i: int, size: tuple[int, int] | None = None
    ) -> Prediction:
        """Prediction for one image of a decoded batch, on the host.

        Args:
          decoded: Result of `decode`, as NumPy arrays.
          i: Index of the image in the batch.
          size: Height and width of the image file. Defaults to the model's input size.
        """
        del decoded, i, size
        return Prediction()

    def values(self, outputs: Any) -> jax.Array:
        """Convert outputs to one array of predictions (probabilities). Traceable."""
        return self.probabilities(outputs)

    def add_offset(self, values: np.ndarray) -> np.ndarray:
        """Add the float64 offset of number outputs, if any, to predictions.

        Args:
          values: Predictions from the method `values`, on the host.
        """
        return values

    # Ensembles of models.

    def mean_outputs(self, outputs: Any) -> Any:
        """Combine the outputs of models so that predictions are averaged. Traceable.

        For classes, returns the logits of the mean probabilities.

        Args:
          outputs: Outputs of each model, stacked: (models, B, ...).
        """
        raise NotImplementedError

    def refuses_mean(self) -> str | None:
        """Reason why ensembles are unsupported; None if they are supported."""
        if type(self).mean_outputs is not OutputDecoder.mean_outputs:
            return None
        return "its decoder does not define `mean_outputs`, the mean of several models"

    # Optional capabilities: by default, these methods return None or raise UserError.

    def answer_parts(self) -> AnswerParts | None:
        """Description of server responses; None if serving is unsupported."""
        return None

    def mask(self, outputs: Any) -> jax.Array:
        """Class of each pixel, uint8 (B, H, W). Traceable."""
        raise UserError(
            f"task = {self.facts.task!r} does not predict pixel classes; use a "
            "segmentation model"
        )

    def labels_found(self, probabilities: np.ndarray) -> np.ndarray:
        """Predicted labels of images, bool (N, labels)."""
        raise UserError(
            f"task = {self.facts.task!r} predicts no labels; use a multilabel model"
        )

    def check_draws(self, option: str) -> None:
        """Raise UserError about `option` if predictions cannot be drawn on images."""
        if not self.draws:
            raise UserError(
                f"{option}: task = {self.facts.task!r} cannot draw predictions on "
                f"images; leave {option} out"
            )

    def calibrated(self, temperature: float | None) -> "OutputDecoder":
        """Create a decoder that divides logits by a temperature.

        Raises:
          UserError: Outputs are not ranked classes (`check_ranks`).
        """
        if temperature is not None:
            self.check_ranks("--calibrated")
        return self

    def check_values(self) -> None:
        """Raise UserError if outputs are neither classes nor numbers."""
        if self.facts.class_names is None:
            raise UserError(
                f"task = {self.facts.task!r} predicts no class probabilities: request "
                "logits instead"
            )

    def check_boxes(self, message: str) -> None:
        """Raise UserError with `message` if outputs are not boxes."""
        raise UserError(message)

    def check_classes(self, option: str) -> None:
        """Raise UserError about `option` if outputs are not image classes."""
        raise UserError(
            f"{option}: task = {self.facts.task!r} does not predict one class per "
            f"image; leave {option} out"
        )

    def check_ranks(self, option: str) -> None:
        """Raise UserError about `option` if outputs are not ranked classes."""
        self.check_classes(option)

    def check_topk(self, topk: int) -> None:
        """Raise UserError if there are fewer than `topk` ranked classes."""
        if topk != 1:
            self.check_ranks("--topk")

    # Export to files.

    def exported(self, *, probabilities: bool, nms: bool) -> "ExportedArray":
        """Create the output array of an exported file.

        Args:
          probabilities: Whether to export probabilities instead of logits.
          nms: Whether to suppress overlapping boxes.

        Raises:
          UserError: The task does not support the requested form.
        """
        from jaxtrain.tasks.exported import ExportedArray

        facts = self.facts
        if nms:
            self.check_boxes(
                f"--include-nms: task = {facts.task!r} predicts no boxes; leave "
                "--include-nms out"
            )
        if not hasattr(facts.outputs, "shape"):
            shapes = jax.tree.map(lambda x: x.shape[1:], facts.outputs)
            raise UserError(
                f"task = {facts.task!r} has outputs of the shapes {shapes}, but an "
                "exported file supports only one output array: use a task with a "
                "single output"
            )
        has_classes = facts.class_names is not None
        if probabilities and has_classes:
            return ExportedArray("probabilities", self.probabilities, has_classes)
        return ExportedArray(self.logits_name, lambda x: x, has_classes)

    def agreement(self, ours: np.ndarray, theirs: np.ndarray) -> float:
        """Fraction of predictions that quantization does not change.

        Args:
          ours: Outputs of the quantized model, (N, ..., classes).
          theirs: Outputs of the reference model.
        """
        return class_agreement(ours, theirs)


def class_agreement(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Fraction of examples with equal argmax over the last axis."""
    return float((ours.argmax(-1) == theirs.argmax(-1)).mean())
