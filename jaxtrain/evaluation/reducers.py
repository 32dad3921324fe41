"""Reducers of the outputs of a model over the examples of a split."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.data.batch import Batch
from jaxtrain.errors import BadNumbersError
from jaxtrain.evaluation.finite import NOT_FINITE, finite_rows
from jaxtrain.tasks.base import Sums, Task, Values
from jaxtrain.tasks.task_metrics import kept_of, sums_of


class Reducer:
    """A reduction of examples to sums and retained per-example arrays.

    Reducers are stateless, like optax transformations; `evaluate` stores the sums.
    """

    def update(self, outputs: Any, batch: Batch) -> tuple[Any, Any]:
        """Reduce a batch. Traced.

        Args:
          outputs: Outputs of the model, (B, ...).
          batch: Preprocessed batch with `target`, `mask`, `index` etc., (B, ...) each.

        Returns:
          Sums over the examples, and arrays to retain, (B, ...) each, or {}.
        """
        raise NotImplementedError

    def merge(self, total: Any, sums: Any) -> Any:
        """Add the sums of a batch to `total`, asynchronously on the devices.

        Args:
          total: Sums so far, whose buffers are donated; None for the first batch.
          sums: Sums of a batch.
        """
        return sums if total is None else add_sums(total, sums)

    def finish(self, sums: Any, kept: Any, numbers: np.ndarray) -> Any:
        """Compute the result on the host.

        Args:
          sums: Sums over all examples, as `merge` returned them.
          kept: Retained arrays of all examples, without padding, (N, ...) each.
          numbers: Indices of the retained examples in the split, (N,).
        """
        raise NotImplementedError


@partial(jax.jit, donate_argnums=0)
def add_sums(total: Any, sums: Any) -> Any:
    return jax.tree.map(jnp.add, total, sums)


@dataclass(frozen=True, eq=False)
class TaskMetrics(Reducer):
    """Reducer that computes the loss and metrics of a task, and `num_examples`.

    Attributes:
      task: Task of the model.
    """

    task: Task

    def update(self, outputs: Any, batch: Batch) -> tuple[Sums, dict[str, Any]]:
        target = batch["target"]
        sums = sums_of(self.task, outputs, target, batch["mask"])
        return sums, kept_of(self.task, outputs, target)

    def finish(self, sums: Any, kept: Any, numbers: np.ndarray) -> Values:
        return self.task.values(jax.device_get(sums), kept)


class Kept(NamedTuple):
    """Per-example arrays of the readable examples of a split.

    Attributes:
      values: Pytree of arrays, (N, ...).
      numbers: Indices of the examples in the split, (N,).
      finite: Whether the outputs for each example are finite, bool (N,).
    """

    values: Any
    numbers: np.ndarray
    finite: np.ndarray

    def check(self, split: str) -> None:
        """Check that all outputs for a split are finite.

        Raises:
          BadNumbersError: Some outputs are not finite.
        """
        bad, num = self.numbers[~self.finite], len(self.finite)
        if len(bad):
            raise BadNumbersError(
                f"{NOT_FINITE} for {len(bad):,} of {num:,} examples of the {split} "
                f"split, such as example {bad.min()}, so metrics would be meaningless: "
                "check mean and std in model.json, use another checkpoint, or train in "
                "a precision with a larger range, such as bf16"
            )


@dataclass(frozen=True, eq=False)
class KeepExamples(Reducer):
    """Reducer that retains per-example arrays; its result is a `Kept`.

    Attributes:
      keep: Traced function (outputs, batch) -> pytree of arrays (B, ...).
    """

    keep: Callable[[Any, Batch], Any]

    def update(self, outputs: Any, batch: Batch) -> tuple[Any, Any]:
        return {}, (self.keep(outputs, batch), finite_rows(outputs))

    def finish(self, sums: Any, kept: Any, numbers: np.ndarray) -> Kept:
        values, finite = kept
        return Kept(values, numbers, finite)


@dataclass(frozen=True, eq=False)
class OnDevices(Reducer):
    """Reducer that stores the outputs for all training examples on the devices.

    Attributes:
      abstract: Abstract outputs: shapes (examples, ...), dtypes and shardings.
    """

    abstract: Any

    def update(self, outputs: Any, batch: Batch) -> tuple[Any, Any]:
        return (outputs, batch["index"]), {}

    def merge(self, total: Any, sums: Any) -> Any:
        if total is None:
            where = jax.tree.map(lambda x: x.sharding, self.abstract)
            total = jax.jit(self._zeros, out_shardings=where)()
        return _put(total, *sums)

    def finish(self, sums: Any, kept: Any, numbers: np.ndarray) -> Any:
        return sums

    def _zeros(self) -> Any:
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), self.abstract)


@partial(jax.jit, donate_argnums=0)
def _put(total: Any, values: Any, index: jax.Array) -> Any:
    return jax.tree.map(lambda every, x: every.at[index].set(x), total, values)


@dataclass(frozen=True, eq=False)
class MeanOfBatches(Reducer):
    """Reducer that averages a dict of arrays over batches, in float64.

    Attributes:
      change: Function applied on the host to the outputs for each batch.
    """

    change: Callable[[dict[Any, Any]], dict[Any, Any]] = lambda outputs: outputs

    def update(self, outputs: Any, batch: Batch) -> tuple[Any, Any]:
        return outputs, {}

    def merge(self, total: Any, sums: Any) -> Any:
        count, before = (0, {}) if total is None else total
        new = self.change(jax.device_get(sums)).items()
        wide = {name: np.asarray(x, np.float64) for name, x in new}
        return count + 1, {name: before.get(name, 0.0) + x for name, x in wide.items()}

    def finish(self, sums: Any, kept: Any, numbers: np.ndarray) -> dict[str, Any]:
        count, totals = sums
        return {name: total / count for name, total in totals.items()}
