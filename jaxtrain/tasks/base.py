"""Base class of tasks."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import numpy as np

from jaxtrain.config.base import Section
from jaxtrain.config.part import reset_options
from jaxtrain.data.batch import Batch
from jaxtrain.models.projection import Projection
from jaxtrain.tasks.decoder import OutputDecoder, OutputFacts
from jaxtrain.tasks.metrics import Metric, values_of
from jaxtrain.tasks.outputs import in_numbers
from jaxtrain.tasks.training_losses import losses_and_metrics

if TYPE_CHECKING:
    from jaxtrain.tasks.requirements import Required

Sums = dict[str, Any]
# Function (images, key, *, average=False) -> (outputs, new model state).
Forward = Callable[..., tuple[Any, Any]]
Values = Sums


class Task:
    """Base class of tasks: outputs, targets, loss, metrics and predictions.

    The constructor takes the image shape (H, W, C), the metadata of the data set
    (`Store.facts`) and the task options. It sets `num_outputs`, for outputs (B,
    num_outputs), or `output_spec`. The built-in tasks are listed in
    `jaxtrain.tasks.TASKS`.

    Attributes:
      Options: Frozen dataclass of the keyword arguments of `__init__`, with defaults
        and checks: a `jaxtrain.config.part.Part` for tasks of plug-ins, a
        `jaxtrain.config.base.Section` for custom tasks. With None, the options of
        `CustomConfig` are passed unchecked. A subclass that overrides `__init__` does
        not inherit `Options`.
      output_spec: Output shape for one image, such as (height, width, features) for a
        feature map, or dicts and tuples of shapes for several heads. Defaults to
        (num_outputs,).
      num_outputs: Number of features of the last layer. Defaults to the sum of the last
        dims in `output_spec`.
      class_names: Class names of the outputs; None if outputs are not classes.
      column_names: Names of the target columns or of the box classes, or None.
      inferred: Options computed from the training targets, recorded in the config.
      refused: Unsupported config fields, with reasons.
      required: Required values by config field.
      target_changes: Types of image augmentations that `transform_target` supports:
        `Geometry` (crops, flips, affine), `Mixing` (mixup and cutmix), `Pasting`
        (cutmix only) and `Mosaic`. Without `Geometry`, geometric augmentations
        transform only the images. The other types are errors unless listed.
      supports: Supported fields among `data.hold_out`, `data.sliding_size`,
        `train.tta`.
      chosen: Values fitted on the validation split (`choose`), such as thresholds; {}
        without validation. None during the evaluation of the validation split.
      whole_images: Whether targets depend on the entire image; proposed recipes then
        crop and flip images only if the task's `advice` proposes it.
      size_multiple: Required divisor of image height and width with the default
        options; proposed recipes round image sizes up to a multiple of it.
      classes_fact: Key of the class names in `Store.facts`; None for tasks without
        classes.
      num_centres: Number of learned class centres on top of the outputs; in training
        the outputs are then `jaxtrain.models.centres.WithCosines`. 0 disables them.
      projection: Learned projection on top of the outputs; in training the outputs are
        then `jaxtrain.models.projection.Projected`. None disables it.
      reads_average: Whether the objective uses outputs of the EMA weights; requires
        `train.ema_decay`.
      needs_whole_batch: Whether the loss of an example depends on the full batch, which
        excludes gradient accumulation.
      loss_of_examples: Whether the evaluation loss is a mean of per-example losses;
        required by attacks and the report.
      one_class_an_image: Whether the target is a class index and the softmax of the
        outputs gives class probabilities. Required by calibration, test-time
        augmentation and label checks.
      best_metric: Main metric, which ranks checkpoints unless the config names another
        metric, and measures attacks and corruptions.
      lowest: Name of a per-class metric, whose lowest value `evaluate` prints, and the
        title of this value.
      known_metrics: All metrics of the task class by name, for reading records.
      own_metrics: Custom metrics of the config, in addition to `metrics`.
      shown: Names of the training and evaluation metrics printed after the loss.
    """

    Options: ClassVar[type[Section] | None] = None
    output_spec: Any = None
    num_outputs: int
    class_names: tuple[str, ...] | None = None
    column_names: tuple[str, ...] | None = None
    inferred: Mapping[str, Any] = MappingProxyType({})
    refused: Mapping[str, str] = MappingProxyType({})
    required: Mapping[str, Required] = MappingProxyType({})
    num_centres: int = 0
    projection: Projection | None = None
    reads_average: bool = False
    needs_whole_batch: bool = False
    loss_of_examples: ClassVar[bool] = True
    whole_images: ClassVar[bool] = False
    size_multiple: ClassVar[int] = 1
    one_class_an_image: ClassVar[bool] = False
    target_changes: ClassVar[tuple[type, ...]] = ()
    supports: ClassVar[frozenset[str]] = frozenset()
    classes_fact: ClassVar[str | None] = None
    chosen: Mapping[str, Any] | None = None
    best_metric: ClassVar[str] = "loss"
    lowest: ClassVar[tuple[str, str]] = "recall", "lowest recall"
    known_metrics: ClassVar[Mapping[str, Metric]] = MappingProxyType({})
    own_metrics: Mapping[str, Metric] = MappingProxyType({})
    shown: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        reset_options(cls)

    def check_targets(self, targets: Any, split: str) -> None:
        """Check stored targets of a split.

        Args:
          targets: Stored targets, on the host: all targets if they are available
            without reading images, else a sample.
          split: Name of the split in messages.

        Raises:
          UserError: Invalid targets.
        """

    def label(self, target: Any) -> str:
        """Format the stored target of an example as readable text."""
        del target
        return ""

    def target(self, batch: Batch) -> Any:
        """Compute the target, any pytree, from a preprocessed batch.

        The batch has the stored `target`, and the augmented and normalized `image` (B,
        H, W, C).
        """
        return batch["target"]

    def transform_target(self, target: Any, change: Any) -> Any:
        """Transform the stored target along with an augmentation of its image. Traced.

        Args:
          target: Target of one example. If the augmentation combines images, a sequence
            of targets: for `Mixing` and `Pasting`, targets (B, ...) of the images and
            targets of the images mixed in; for `Mosaic`, targets of four examples.
          change: Augmentation, an instance of one of `target_changes`.
        """
        raise NotImplementedError

    def loss(self, outputs: Any, target: Any, *, training: bool) -> jax.Array:
        """Compute the loss of each example, (B,), in at least float32.

        Args:
          outputs: Outputs of the model, with the shapes in `output_spec`.
          target: Result of the method `target`.
          training: Whether to compute the training loss rather than the evaluation
            loss.
        """
        raise NotImplementedError

    def labelled(self, target: Any) -> jax.Array | None:
        """Mask of the examples that evaluations include, bool (B,); None includes all.

        Args:
          target: Result of the method `target`.
        """
        del target
        return None

    def objective(
        self, forward: Forward, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, dict[str, jax.Array], Any]:
        """Return the per-example training loss (B,), the metrics and new model state.

        Defaults to one forward pass, `loss` and `train_metrics`. Override for losses
        with several forward passes, which pipeline parallelism does not support.

        Args:
          forward: Function `(images, key, *, average=False) -> (outputs, new model
            state)` that runs the model in training mode. Each call starts from the
            model state before the step. `average` uses the EMA weights (see
            `reads_average`), without gradients.
          batch: Preprocessed batch, with `image`, stored `target` and `index`.
          key: PRNG key for `forward`.
        """
        outputs, model_state = forward(batch["image"], key)
        losses, metrics = losses_and_metrics(self, outputs, self.target(batch))
        return losses, metrics, model_state

    def train_metrics(self, outputs: Any, target: Any) -> dict[str, jax.Array]:
        """Compute training metrics by name: means over a batch, float32 scalars."""
        del outputs, target
        return {}

    def metrics(self) -> Mapping[str, Metric]:
        """Evaluation metrics in addition to the loss. Defaults to `known_metrics`."""
        return self.known_metrics

    def choose(self, validation: Values) -> dict[str, list[float]]:
        """Fit values, such as thresholds, to the validation metrics.

        The values, one per output, are saved with the weights, as `chosen`.

        Args:
          validation: Metrics of the validation split, by name.
        """
        del validation
        return {}

    @classmethod
    def decoder(cls, facts: OutputFacts) -> OutputDecoder:
        """Create the output decoder for a run of this task.

        `predict`, `export` and `serve` import custom tasks only with `--trust`.
        """
        from jaxtrain.tasks.array_decoder import RowDecoder
        from jaxtrain.tasks.class_decoder import ClassDecoder

        if not facts.is_row:
            return OutputDecoder(facts)
        return RowDecoder(facts) if facts.class_names is None else ClassDecoder(facts)

    def draw_target(self, image: np.ndarray, target: Any) -> np.ndarray:
        """Draw a target on its image, for previews. Defaults to the unchanged image.

        Args:
          image: Augmented image, uint8 (H, W, C).
          target: Stored target, augmented with the image, on the host.
        """
        del target
        return image

    def draw_example(
        self, image: np.ndarray, target: Any, outputs: Any
    ) -> Mapping[str, np.ndarray | str]:
        """Draw the target and the outputs of an example, for the report.

        Defaults to text. `tasks/pictures.py` has functions that draw masks and boxes.

        Args:
          image: Input image of the model, uint8 (H, W, C).
          target: Result of the method `target` for the image, on the host.
          outputs: Outputs of the model for the image, on the host.

        Returns:
          Images, uint8 (H, W, C), or texts, by title. The report truncates long texts.
        """
        return {"target": in_numbers(target), "prediction": in_numbers(outputs)}

    def values(
        self, sums: Sums, kept: Mapping[str, Any] = MappingProxyType({})
    ) -> Values:
        """Compute metrics from the sums of an evaluation, on the host.

        Metrics with missing sums are omitted. If the loss is NaN, all numbers are NaN
        and lists are omitted: `argmax` of NaN outputs would count as a prediction of
        class 0.

        Args:
          sums: Sums over all examples.
          kept: Per-example arrays of metrics with `keep`, (N, ...) each.
        """
        return values_of({**self.metrics(), **self.own_metrics}, sums, kept)


def with_chosen(task: Task, chosen: Mapping[str, Any]) -> Task:
    """Return a copy of a task with other fitted values (see `Task.choose`)."""
    task = copy.copy(task)
    task.chosen = chosen
    return task


def defines(task: Task | type[Task], method: str) -> bool:
    """Whether a task overrides a method of `Task`."""
    kind = task if isinstance(task, type) else type(task)
    return getattr(kind, method) is not getattr(Task, method)
