"""Predictions: rows of a table, answers of a server, arrays of exported files."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import numpy as np

from jaxtrain.errors import UserError
from jaxtrain.tasks.exported import ExportedArray
from jaxtrain.tasks.prediction import AnswerParts, Prediction

if TYPE_CHECKING:
    from jaxtrain.data.fit import Fit
Columns = Mapping[str, type]


@dataclass(frozen=True, kw_only=True, eq=False)
class OutputFacts:
    """Recorded facts of a run from which its decoder is built.

    Attributes:
      task: Name of the task, for messages.
      options: Options of the task.
      class_names: `Task.class_names` of the run.
      column_names: `Task.column_names` of the run.
      image_shape: Height, width and channels of the images that the model sees.
      outputs: Shapes of the outputs of one image, (1, ...), a tree of
        jax.ShapeDtypeStruct.
      chosen: Values chosen on the validation split (`Task.choose`).
      fit: Resizing of an image to `image_shape`; None where no image is resized.
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
        """Return points in the pixels of an image file, which may lie beyond it.

        Args:
          points: Points (..., 2) in pixels of the image that the model sees: x and y.
          size: Height and width of the image in its file.
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
        """Whether the outputs of an image are one row of numbers."""
        return len(getattr(self.outputs, "shape", ())) == 2


class OutputDecoder:
    """Decoder of outputs; by default of arrays without a meaning of their own.

    Args:
      facts: Recorded facts of the run.

    Attributes:
      logits_name: Name of the raw outputs in an exported file.
      in_units: Outputs that 256 steps are too few for, in words; None: there are none.
      command_options: Options of `predict` to suggest after a run.
      draws: Whether its predictions are drawn on images (`Prediction.draw`).
      embeds: Whether `values` are the features of an image; else these are the inputs
        of the last layer.
      agrees: Share of `agreement`, in words.
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
        """Return in a few words what the outputs are."""
        num = sum(x.shape[-1] for x in jax.tree.leaves(self.facts.outputs))
        return f"{num} outputs"

    # The table of `predict`, and its summary on the screen.

    def columns(self, topk: int = 1) -> Columns:
        """Return the columns of the table; {}: a row cannot hold the outputs."""
        del topk
        return {}

    def heads(self) -> tuple[str, ...]:
        """Return the heads of the table on the screen, beside the name of the file."""
        return ()

    def num_hidden(self) -> int:
        """Return the number of values that the table on the screen leaves out."""
        return 0

    # Outputs to predictions.

    def probabilities(self, outputs: Any) -> jax.Array:
        """Return the probability of each class, (..., classes). May be traced.

        Args:
          outputs: Logits, (..., classes).
        """
        return jax.nn.softmax(outputs)

    def decode(self, outputs: Any, topk: int = 1) -> dict[str, Any]:
        """Return named arrays (B, ...) of outputs, float32. May be traced."""
        del outputs, topk
        return {}

    def prediction(
        self, decoded: Mapping[str, Any], i: int, size: tuple[int, int] | None = None
    ) -> Prediction:
        """Return the prediction for one image of a decoded batch, on the host.

        Args:
          decoded: What `decode` returned, as NumPy arrays.
          i: Number of the image in the batch.
          size: Height and width of the image in its file; None: those that the model
            sees.
        """
        del decoded, i, size
        return Prediction()

    def values(self, outputs: Any) -> jax.Array:
        """Return one array of predictions, such as probabilities. May be traced."""
        return self.probabilities(outputs)

    def whole(self, values: np.ndarray) -> np.ndarray:
        """Return `values` on the host in their full precision."""
        return values

    # Ensembles.

    def mean_outputs(self, outputs: Any) -> Any:
        """Return the mean prediction of several models as outputs of one. Traced.

        For classes, these are the logits of the mean probabilities.

        Args:
          outputs: Outputs of each model, stacked: (models, B, ...).
        """
        raise NotImplementedError

    def refuses_mean(self) -> str | None:
        """Return why outputs of several models have no mean; None: they have one."""
        if type(self).mean_outputs is not OutputDecoder.mean_outputs:
            return None
        return "it is not said what the mean of the outputs of several models is"

    # Capabilities of some decoders: others return None, or raise.

    def answer_parts(self) -> AnswerParts | None:
        """Return the parts of a server's answers; None: it has nothing to answer."""
        return None

    def mask(self, outputs: Any) -> jax.Array:
        """Return the class of each pixel, uint8 (B, H, W). May be traced."""
        raise UserError(f"task = {self.facts.task!r} tells no classes of pixels")

    def labels_found(self, probabilities: np.ndarray) -> np.ndarray:
        """Return which labels images are said to have, bool (N, labels)."""
        raise UserError(f"task = {self.facts.task!r} tells no labels")

    def check_draws(self, option: str) -> None:
        """Raise UserError for an option if predictions are not drawn on images."""
        if not self.draws:
            raise UserError(
                f"{option}: task = {self.facts.task!r} draws no predictions on images; "
                "leave it out"
            )

    def calibrated(self, temperature: float | None) -> "OutputDecoder":
        """Return the decoder of logits that are divided by a temperature.

        Raises:
          UserError: No class is the likeliest (`check_ranks`).
        """
        if temperature is not None:
            self.check_ranks("--calibrated")
        return self

    def check_values(self) -> None:
        """Raise UserError if the outputs are neither classes nor numbers."""
        if self.facts.class_names is None:
            raise UserError(
                f"task = {self.facts.task!r} has no classes, and so no "
                "probabilities: ask for its logits"
            )

    def check_boxes(self, message: str) -> None:
        """Raise UserError with a message if there are no boxes."""
        raise UserError(message)

    def check_classes(self, option: str) -> None:
        """Raise UserError for an option if there are no classes of whole images."""
        raise UserError(
            f"{option}: task = {self.facts.task!r} has no classes of whole images; "
            "leave it out"
        )

    def check_ranks(self, option: str) -> None:
        """Raise UserError for an option if no class of an image is the likeliest."""
        self.check_classes(option)

    def check_topk(self, topk: int) -> None:
        """Raise UserError if there are not so many ranked classes."""
        if topk != 1:
            self.check_ranks("--topk")

    # Exported files.

    def exported(self, *, probabilities: bool, nms: bool) -> ExportedArray:
        """Return the array of an exported file.

        Args:
          probabilities: Whether logits of classes become probabilities.
          nms: Whether overlapping boxes are left out.

        Raises:
          UserError: The outputs have no such form.
        """
        facts = self.facts
        if nms:
            self.check_boxes(
                f"--include-nms: task = {facts.task!r} finds no boxes; leave it out"
            )
        if not hasattr(facts.outputs, "shape"):
            shapes = jax.tree.map(lambda x: x.shape[1:], facts.outputs)
            raise UserError(
                f"task = {facts.task!r} has outputs of the shapes {shapes} for an "
                "image, and an exported file has one array: give the model a task with "
                "one of them"
            )
        has_classes = facts.class_names is not None
        if probabilities and has_classes:
            return ExportedArray("probabilities", self.probabilities, has_classes)
        return ExportedArray(self.logits_name, lambda x: x, has_classes)

    def agreement(self, ours: np.ndarray, theirs: np.ndarray) -> float:
        """Return the share of classes that a roughly rounded model keeps.

        Args:
          ours: Outputs of the model, (N, ..., classes).
          theirs: Outputs of the model whose classes are the right ones.
        """
        return class_agreement(ours, theirs)


def class_agreement(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Return the share of examples that get the same class by the largest outputs."""
    return float((ours.argmax(-1) == theirs.argmax(-1)).mean())
