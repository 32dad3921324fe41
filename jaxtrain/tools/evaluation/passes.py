"""Evaluation of a trained model on a split: metrics, intervals, per-example arrays.

Batches are sharded over all devices, and images are streamed. Memory contains only sums
and the retained arrays of each example.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax

from jaxtrain.config import DataConfig
from jaxtrain.data.augment import windows
from jaxtrain.data.batch import Batch
from jaxtrain.data.datasets import Dataset
from jaxtrain.data.defects import Defects
from jaxtrain.data.fit import Fit
from jaxtrain.data.sources import Source
from jaxtrain.evaluation.evaluate import (
    EVALUATION,
    ModelView,
    Weights,
    compiler,
    eval_batch_size,
    evaluate,
)
from jaxtrain.evaluation.reducers import KeepExamples, Kept, Reducer, TaskMetrics
from jaxtrain.evaluation.resampling import Intervals
from jaxtrain.inference.model import TrainedModel
from jaxtrain.tasks.base import Task, Values
from jaxtrain.tasks.target_transforms import transform_of
from jaxtrain.tools.evaluation.class_mapping import ClassMapping
from jaxtrain.training.views import View, plain

# Traced function (outputs, batch) -> per-example arrays to retain, (B, ...) each.
Keep = Callable[[Any, Batch], dict[str, Any]]
# Host function (params, model_state, batch) -> batch, such as an adversarial attack.
Change = Callable[[Any, Any, Batch], Batch]
# Key that a `Change` adds to a batch: model inputs (0..255) to use instead of `image`.
SHOWN = "shown"


class PassResult(NamedTuple):
    """Result of an evaluation on a split.

    Attributes:
      values: Metrics of the task.
      kept: Per-example arrays, without unreadable examples.
      intervals: Confidence interval (low, high) of each metric.
      num_unreadable: Number of unreadable examples, which are skipped.
    """

    values: Values
    kept: Kept
    intervals: Values
    num_unreadable: int

    def checked(self, split: str) -> "PassResult":
        """Check that all outputs are finite; return the result.

        Raises:
          BadNumbersError: Some outputs are not finite.
        """
        self.kept.check(split)
        return self


@dataclass(frozen=True, kw_only=True)
class Subject:
    """Model to evaluate, with its task and preprocessing.

    Attributes:
      model: Model with its weights.
      task: Task of the model.
      data: Data config of the evaluation.
      size: Height and width after resizing on the device. None means no resizing.
      fit: Crop and interpolation of the resizing on the device.
      classes: Mapping from classes of the data set to classes of the model; None if
        equal.
    """

    model: TrainedModel
    task: Task
    data: DataConfig
    size: int | None
    fit: Fit
    classes: ClassMapping | None = None

    def fitted(self, batch: Batch) -> Batch:
        """Crop and resize images on the device, and transform their targets."""
        if self.size is None:
            return batch
        follow = transform_of(self.task)
        return windows.centre_crops(batch, self.size, self.fit, follow)


@dataclass(frozen=True, kw_only=True, eq=False)
class Pass:
    """Evaluation of a model on any number of splits, compiled once.

    Attributes:
      subject: Model to evaluate.
      view: Test-time augmentation of each image.
      change: Function that adds perturbed images to each batch, under the key `SHOWN`.
        None for unchanged images.
      keep: Function that selects the arrays to retain per example.
      with_intervals: Whether to compute confidence intervals.
      max_bad_fraction: Maximum fraction of unreadable images. Defaults to
        `data.max_bad_fraction`.
    """

    subject: Subject
    view: View = plain
    change: Change | None = None
    keep: Keep = lambda outputs, batch: {}
    with_intervals: bool = False
    max_bad_fraction: float | None = None

    def __call__(
        self,
        source: Source,
        name: str,
        advance: Callable[[int], None] = lambda num: None,
    ) -> PassResult:
        """Evaluate a split.

        Args:
          source: Examples to evaluate.
          name: Name of the split in messages.
          advance: Progress callback, called with the number of examples of each batch.

        Raises:
          UserError: Too many images are unreadable.
        """
        data, model = self.subject.data, self.subject.model
        allowed = self.max_bad_fraction
        if allowed is None:
            allowed = data.max_bad_fraction
        dataset = Dataset(source, {}, Defects(name, len(source), allowed))
        size, reducers = model.share(eval_batch_size(data)), self._reducers
        values, kept, *intervals = evaluate(
            self._view, dataset, reducers, data, batch_size=size, advance=advance
        )
        low_and_high = intervals[0] if intervals else {}
        return PassResult(values, kept, low_and_high, len(source) - len(kept.numbers))

    @functools.cached_property
    def _reducers(self) -> tuple[Reducer, ...]:
        task = self.subject.task
        found = TaskMetrics(task), KeepExamples(self.keep)
        return (*found, Intervals(task)) if self.with_intervals else found

    @functools.cached_property
    def _view(self) -> ModelView:
        model, change = self.subject.model, self.change

        def apply(weights: Weights, data: Any, batches: Batch) -> tuple[Any, Batch]:
            batch = self._fitted(batches) if change is None else batches
            return self._outputs(weights, batch)

        program: Any = compiler(apply, model.mesh, *EVALUATION, together=False)
        if change is not None:
            step, fit = program(self._reducers), jax.jit(self._fitted)

            def changed(weights: Weights, data: Any, batches: Batch) -> Any:
                return step(weights, data, change(*weights, fit(batches)))

            program = lambda reducers: changed  # noqa: E731
        return ModelView(weights=model.placed, mesh=model.mesh, program=program)

    def _fitted(self, batches: Batch) -> Batch:
        """Remove the step axis of a batch, (1, B, ...), and resize its images."""
        return self.subject.fitted(jax.tree.map(lambda x: x[0], batches))

    def _outputs(self, weights: Weights, batch: Batch) -> tuple[Any, Batch]:
        """Return the outputs for a batch, and the batch with the task's target."""
        task, model = self.subject.task, self.subject.model
        pixels = batch["image"]
        target = task.target({**batch, "image": model.prepare(pixels)})

        def apply(pixels: jax.Array) -> jax.Array:
            return model.forward(*weights, model.prepare(pixels))

        shown = batch.get(SHOWN, pixels)
        outputs = self.view(apply, shown, model.image_shape[:2])
        return outputs, {**batch, "target": target}
