"""A pass over a split: metrics of the task, their intervals, and scores of examples.

The batch is shared by all devices, images are streamed, and what stays is sums and a
few numbers of each example, whatever the size of the set.
"""

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain import keys
from jaxtrain.config import DataConfig
from jaxtrain.console import progress
from jaxtrain.data.augment import windows
from jaxtrain.data.batch import Batch
from jaxtrain.data.datasets import Dataset
from jaxtrain.data.defects import Defects
from jaxtrain.data.images import Fit
from jaxtrain.data.sources import Source
from jaxtrain.engine import passes
from jaxtrain.engine.finite import check_finite, finite_rows
from jaxtrain.evaluation import resampling
from jaxtrain.evaluation.class_mapping import ClassMapping
from jaxtrain.inference.model import TrainedModel
from jaxtrain.parallel import sharding
from jaxtrain.tasks.base import Sums, Task, Values
from jaxtrain.training.compiled import Compiled
from jaxtrain.training.views import View, plain

# What a program is for, and what takes less memory.
PURPOSE = (
    "an evaluation",
    "set a smaller data.eval_batch_size, or more devices",
)
# (outputs, target) -> arrays (B, ...): what is kept of each example.
Keep = Callable[[Any, Any], dict[str, Any]]
# (params, model_state, batch) -> batch; called by the host.
Change = Callable[[Any, Any, Batch], Batch]
# Keys that a change adds to a batch: images in 0..255 that the model is shown in place
# of `image`, and arrays (B, ...), by name, that are kept of each example.
SHOWN, MARKS = "shown", "marks"


class PassResult(NamedTuple):
    """What a pass has found.

    Attributes:
      values: Metrics of the task.
      intervals: Low and high of each metric.
      kept: Arrays of the examples that could be read, (N, ...).
      numbers: Numbers of these examples in the split, (N,).
      finite: Whether the outputs for each are finite, bool (N,).
      num_unreadable: Number of the examples that were left out.
    """

    values: Values
    intervals: Values
    kept: dict[str, Any]
    numbers: np.ndarray
    finite: np.ndarray
    num_unreadable: int

    def checked(self, split: str) -> "PassResult":
        """Return this, after a look at the outputs.

        Raises:
          BadNumbersError: Some are not finite.
        """
        check_finite(self.finite, self.numbers, split)
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
        return windows.centres(batch, self.size, self.fit, self.task.follow)


@dataclass(frozen=True, kw_only=True, eq=False)
class Pass:
    """A kind of pass, compiled once for all splits that it goes over.

    Attributes:
      subject: What is evaluated.
      view: What the model is shown of each image.
      change: Function that changes each batch before, and adds `SHOWN` and `MARKS`.
        None shows the images as they are.
      bar: Title of a progress bar, for a pass that takes minutes. None shows no bar.
      keep: What is remembered of each example.
      with_intervals: Whether metrics get intervals.
      max_bad_fraction: Part of a split that may be unreadable. None means that of the
        config.
    """

    subject: Subject
    view: View = plain
    change: Change | None = None
    bar: str | None = None
    keep: Keep = lambda outputs, target: {}
    with_intervals: bool = False
    max_bad_fraction: float | None = None

    def __call__(self, source: Source, name: str) -> PassResult:
        """Go over a split.

        Args:
          name: Name of the split in messages.

        Raises:
          UserError: more of its images than are allowed cannot be read.
        """
        data, model, task = self.subject.data, self.subject.model, self.subject.task
        allowed = self.max_bad_fraction
        if allowed is None:
            allowed = data.max_bad_fraction
        defects = Defects(name, len(source), allowed)
        found = passes.over_split(
            data,
            Dataset(source, {}, defects),
            model.mesh,
            model.share(passes.eval_batch_size(data)),
            functools.partial(self._program, *model.placed),
        )
        total, parts = None, []
        with self._progress(len(source)) as advance:
            for batch, (sums, kept) in found:
                total = sums if total is None else _add(total, sums)
                known = batch["mask"] > 0
                kept = {**kept, "numbers": batch["index"]}
                parts.append(jax.tree.map(lambda x, k=known: np.asarray(x)[k], kept))
                advance(known.sum())
        sums, resampled = jax.device_get(total)
        intervals = {}
        whole = jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)
        if self.with_intervals:
            kept, numbers = whole["metrics"], whole["numbers"]
            intervals = {
                **resampling.intervals(task, resampled, sums),
                **resampling.kept_intervals(task, kept, numbers, task.num_outputs),
            }
        return PassResult(
            task.values(sums, whole["metrics"]),
            intervals,
            whole["kept"],
            whole["numbers"],
            whole["finite"],
            len(source) - len(whole["numbers"]),
        )

    def _progress(self, total: int) -> Any:
        if self.bar is None:
            return contextlib.nullcontext(lambda num: None)
        return progress(self.bar, total)

    @functools.cached_property
    def _program(self) -> Any:
        subject = self.subject
        model = subject.model
        replicated = sharding.replicated(model.mesh)

        def fitted(batches: Batch) -> Batch:
            """Return the only batch of (1, B, ...), in the size that is shown."""
            return subject.fitted(jax.tree.map(lambda x: x[0], batches))

        def program(function: Callable[..., Any]) -> Compiled:
            options: Any = {"together": False, "out_shardings": replicated}
            return Compiled(function, *PURPOSE, **options)

        change = self.change
        if change is None:

            def whole(params: Any, model_state: Any, batches: Batch) -> Any:
                return self._step(params, model_state, fitted(batches))

            return program(whole)
        fit = jax.jit(fitted)
        step = program(self._step)

        def changed(params: Any, model_state: Any, batches: Batch) -> Any:
            batch = change(params, model_state, fit(batches))
            return step(params, model_state, batch)

        return changed

    def _step(
        self, params: Any, model_state: Any, batch: Batch
    ) -> tuple[tuple[Sums, Sums], dict[str, Any]]:
        """Return the sums of a batch, those of resamples, and what is kept."""
        task, model = self.subject.task, self.subject.model
        pixels, mask, index = batch["image"], batch["mask"], batch["index"]

        target = task.target({**batch, "image": model.prepare(pixels)})
        shown = batch.get(SHOWN, pixels)

        def apply(pixels: jax.Array) -> jax.Array:
            return model.forward(params, model_state, model.prepare(pixels))

        outputs = self.view(apply, shown, model.image_shape[:2])
        sums, resampled = task.sums(outputs, target, mask), {}
        if self.with_intervals:
            root, num = keys.root_key(resampling.SEED), resampling.NUM_RESAMPLES
            counts = resampling.weights(root, index, num)
            resampled = resampling.resampled_sums(task, outputs, target, mask, counts)
        kept = {
            "kept": self.keep(outputs, target) | batch.get(MARKS, {}),
            "metrics": task.kept(outputs, target),
            "finite": finite_rows(outputs),
        }
        return (sums, resampled), kept


@functools.partial(jax.jit, donate_argnums=0)
def _add(total: Any, new: Any) -> Any:
    return jax.tree.map(jnp.add, total, new)
