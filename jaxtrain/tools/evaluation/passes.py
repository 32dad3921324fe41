"""A pass over a split: metrics of the task, their intervals, and scores of examples.

The batch is shared by all devices, images are streamed, and what stays is sums and a
few numbers of each example, whatever the size of the set.
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

# (outputs, batch) -> arrays (B, ...), traced: what is kept of each example.
Keep = Callable[[Any, Batch], dict[str, Any]]
# (params, model_state, batch) -> batch; called by the host.
Change = Callable[[Any, Any, Batch], Batch]
# Key that a change adds to a batch: images in 0..255 that the model is shown in place
# of `image`.
SHOWN = "shown"


class PassResult(NamedTuple):
    """What a pass has found.

    Attributes:
      values: Metrics of the task.
      kept: Arrays of the examples that could be read.
      intervals: Low and high of each metric.
      num_unreadable: Number of the examples that were left out.
    """

    values: Values
    kept: Kept
    intervals: Values
    num_unreadable: int

    def checked(self, split: str) -> "PassResult":
        """Return this, after a look at the outputs.

        Raises:
          BadNumbersError: Some are not finite.
        """
        self.kept.check(split)
        return self


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is evaluated, and how images come to it.

    Attributes:
      model: Model with its weights.
      task: Task that it has learnt.
      data: Config of how images are read.
      size: Size that the device gives to images; None: they come in theirs.
      fit: How the device does so.
      classes: Classes of the set by the model's numbers; None: they are the model's.
    """

    model: TrainedModel
    task: Task
    data: DataConfig
    size: int | None
    fit: Fit
    classes: ClassMapping | None = None

    def fitted(self, batch: Batch) -> Batch:
        """Return a batch as a split has it, in the size that evaluations show."""
        if self.size is None:
            return batch
        return windows.centres(batch, self.size, self.fit, transform_of(self.task))


@dataclass(frozen=True, kw_only=True, eq=False)
class Pass:
    """A kind of pass, compiled once for all splits that it goes over.

    Attributes:
      subject: What is evaluated.
      view: What the model is shown of each image.
      change: Function that changes each batch before, and adds `SHOWN`. None shows the
        images as they are.
      keep: What is remembered of each example.
      with_intervals: Whether metrics get intervals.
      max_bad_fraction: Part of a split that may be unreadable. None means that of the
        config.
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
        """Go over a split.

        Args:
          source: Examples to evaluate.
          name: Name of the split in messages.
          advance: Told the number of examples of each batch that is done.

        Raises:
          UserError: more of its images than are allowed cannot be read.
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
        """Return the only batch of (1, B, ...), in the size that is shown."""
        return self.subject.fitted(jax.tree.map(lambda x: x[0], batches))

    def _outputs(self, weights: Weights, batch: Batch) -> tuple[Any, Batch]:
        """Return the outputs for a batch, and it with the target of the task."""
        task, model = self.subject.task, self.subject.model
        pixels = batch["image"]
        target = task.target({**batch, "image": model.prepare(pixels)})

        def apply(pixels: jax.Array) -> jax.Array:
            return model.forward(*weights, model.prepare(pixels))

        shown = batch.get(SHOWN, pixels)
        outputs = self.view(apply, shown, model.image_shape[:2])
        return outputs, {**batch, "target": target}
