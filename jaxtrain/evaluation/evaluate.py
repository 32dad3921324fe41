"""Evaluation loop over a split, also used for statistics, features and inference.

Reducers compute the results from the outputs of the model for each batch.
"""

from __future__ import annotations

import collections
import contextlib
import functools
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh

from jaxtrain.data import loader
from jaxtrain.data.batch import Batch
from jaxtrain.data.datasets import Dataset
from jaxtrain.data.loader import HostBatch
from jaxtrain.evaluation.reducers import Reducer
from jaxtrain.parallel import data_sharding
from jaxtrain.training.calls_ahead import Pace
from jaxtrain.training.compiled import Compiled

if TYPE_CHECKING:
    from jaxtrain.config import DataConfig

# Parameters and other state of a model.
Weights = tuple[Any, Any]
Given = TypeVar("Given")
Result = TypeVar("Result")

# For out-of-memory messages: purpose of the evaluation program, and remedy.
EVALUATION = (
    "an evaluation",
    "set a smaller data.eval_batch_size, or use more devices",
)
# Traced function (weights, data, batches) -> (outputs, batch). `data` is
# `Dataset.on_device`, `batches` has the shape (1, B, ...), with an axis of one step,
# and `batch` is the preprocessed batch, (B, ...), whose target the reducers use.
Apply = Callable[[Weights, Any, Batch], tuple[Any, Batch]]
# Compiled function (weights, data, batches) -> results of `reduce_batch`.
Program = Callable[[Weights, Any, Batch], tuple[Any, Any]]


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelView:
    """A model to evaluate: its weights and its compiled programs.

    Attributes:
      weights: Parameters and other state of the model, on the devices.
      mesh: Mesh of the devices, over which batches are sharded.
      program: Function that returns the compiled program for a tuple of reducers.
    """

    weights: Weights
    mesh: Mesh
    program: Callable[[tuple[Reducer, ...]], Program]


def evaluate(
    model: ModelView,
    dataset: Dataset,
    reducers: Sequence[Reducer],
    config: DataConfig,
    *,
    batch_size: int | None = None,
    batches: Generator[HostBatch, None, None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    advance: Callable[[int], None] = lambda num: None,
) -> tuple[Any, ...]:
    """Compute the results of reducers in a single pass over a split.

    The host prepares a batch while the devices compute the previous one.

    Args:
      model: Model to evaluate.
      dataset: Examples to evaluate.
      reducers: Reducers of the model's outputs.
      config: Data section of the config.
      batch_size: Global number of examples per batch. Defaults to `eval_batch_size`.
      batches: Host batches of this process, (n, ...) each. By default, every example
        occurs once, and the last batch has padding, marked by its `mask`.
      should_stop: Callback before each batch is dispatched; True ends the evaluation.
      advance: Callback with the number of examples of each finished batch.

    Returns:
      The result of each reducer; () if the evaluation was stopped.
    """
    size = batch_size or eval_batch_size(config)
    if batches is None:
        batches = loader.eval_batches(config, dataset, model.mesh, size)
    reducers, stopped = tuple(reducers), False

    def until_stopped() -> Generator[HostBatch, None, None]:
        nonlocal stopped
        with contextlib.closing(batches):
            for batch in batches:
                if stopped := should_stop():
                    return
                yield batch

    def start(batch: HostBatch) -> Any:
        one_step = jax.tree.map(lambda rows: rows[None], batch)
        placed = data_sharding.put_batch(model.mesh, one_step, size)
        return model.program(reducers)(model.weights, dataset.on_device, placed)

    totals, parts, pace = [None] * len(reducers), list[Any](), Pace()
    for batch, (reduced, known) in results(until_stopped(), start):
        pairs = zip(reducers, totals, reduced, strict=True)
        totals = [reducer.merge(total, new) for reducer, total, (new, _) in pairs]
        parts.append(_to_host([kept for _, kept in reduced], known))
        pace.sent(totals)
        advance(int(batch["mask"].sum()) if "mask" in batch else size)
    if stopped:
        return ()
    kept, index = jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)
    numbers = index - dataset.first
    return tuple(
        reducer.finish(total, of_reducer, numbers)
        for reducer, total, of_reducer in zip(reducers, totals, kept, strict=True)
    )


def _to_host(kept: Any, examples: Any) -> tuple[Any, Any]:
    """Copy retained arrays and example indices to the host, and drop the padding.

    Args:
      kept: Retained arrays of a batch, (B, ...) each.
      examples: Arrays `mask` and `index` of the batch, (B,) each; {} if no array is
        retained.
    """
    if not examples:
        return kept, np.zeros(0, np.int32)
    kept, examples = jax.device_get((kept, examples))
    rows = examples["mask"] > 0
    return jax.tree.map(lambda x: x[rows], kept), examples["index"][rows]


def reduce_batch(
    reducers: Sequence[Reducer], outputs: Any, batch: Batch
) -> tuple[tuple[tuple[Any, Any], ...], dict[str, jax.Array]]:
    """Apply all reducers to the outputs for a batch. Traced.

    Args:
      reducers: Reducers to apply.
      outputs: Outputs of the model, (B, ...).
      batch: Preprocessed batch, (B, ...), with its target.

    Returns:
      Sums and retained arrays of each reducer; and a dict with `mask` and `index` of
      the examples, or {} if no reducer retains arrays.
    """
    reduced = tuple(reducer.update(outputs, batch) for reducer in reducers)
    if not jax.tree.leaves([kept for _, kept in reduced]):
        return reduced, {}
    return reduced, {name: batch[name] for name in ("mask", "index")}


def compiler(
    apply: Apply, mesh: Mesh, purpose: str, fix: str | None = None, **options: Any
) -> Callable[[tuple[Reducer, ...]], Compiled]:
    """Return a cached function that compiles the program of a tuple of reducers.

    Args:
      apply: Traced function that computes the outputs of the model; see `Apply`.
      mesh: Mesh of the devices.
      purpose: Purpose of the program, for out-of-memory messages.
      fix: Advice to save memory, for out-of-memory messages.
      **options: Options of `Compiled`.
    """
    everywhere = data_sharding.replicated(mesh)

    @functools.cache
    def compiled(reducers: tuple[Reducer, ...]) -> Compiled:
        def eval_step(weights: Weights, data: Any, batches: Batch) -> Any:
            return reduce_batch(reducers, *apply(weights, data, batches))

        return Compiled(eval_step, purpose, fix, out_shardings=everywhere, **options)

    return compiled


def results(
    batches: Generator[Given, None, None],
    start: Callable[[Given], Result],
    *,
    in_flight: int = 1,
) -> Generator[tuple[Given, Result], None, None]:
    """Yield each batch with its result, while the next batches are computed.

    Args:
      batches: Batches of examples. The generator is closed at the end.
      start: Function that dispatches the computation of a result without waiting.
      in_flight: Number of further batches to dispatch before a result is yielded.
    """
    waiting: collections.deque[tuple[Given, Result]] = collections.deque()
    with contextlib.closing(batches):
        for batch in batches:
            waiting.append((batch, start(batch)))
            if len(waiting) > in_flight:
                yield waiting.popleft()
        yield from waiting


def eval_batch_size(config: DataConfig) -> int:
    """Return the number of examples per evaluation batch."""
    return config.eval_batch_size or config.batch_size
