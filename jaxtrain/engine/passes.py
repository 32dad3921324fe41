"""The only loop over examples that is not training.

A split is evaluated, a model is used on files, features are computed: each is a pass,
with its batches, what starts to compute a batch, and what is made of the results.
"""

import collections
import contextlib
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh

from jaxtrain.config import DataConfig
from jaxtrain.data import loader
from jaxtrain.data.batch import Batch
from jaxtrain.data.datasets import Dataset
from jaxtrain.parallel import sharding
from jaxtrain.tasks.base import Sums, Task, Values
from jaxtrain.training.calls_ahead import Pace
from jaxtrain.training.state import TrainState

Given = TypeVar("Given")
Result = TypeVar("Result")

EvalStep = Callable[[Any, Any, Any, Any, Any], Any]


def results(
    batches: Generator[Given, None, None],
    start: Callable[[Given], Result],
    *,
    in_flight: int = 1,
) -> Generator[tuple[Given, Result], None, None]:
    """Yield each batch with its result, handed out while the next ones are computed.

    Args:
      batches: Batches of examples; closed at the end.
      start: Function that starts to compute the result of a batch, and does not wait.
      in_flight: Number of batches that are started before a result is handed out.
    """
    waiting: collections.deque[tuple[Given, Result]] = collections.deque()
    with contextlib.closing(batches):
        for batch in batches:
            waiting.append((batch, start(batch)))
            if len(waiting) > in_flight:
                yield waiting.popleft()
        yield from waiting


def shared(mesh: Mesh, batch: Any, batch_size: int) -> Batch:
    """Put this process's rows of a batch on the devices, with a leading axis of steps.

    Args:
      mesh: Mesh of the devices.
      batch: Rows of this process, (n, ...) each.
      batch_size: Number of examples of all processes.
    """
    return sharding.put_batch(
        mesh, jax.tree.map(lambda rows: rows[None], batch), batch_size
    )


def over_split(
    config: DataConfig,
    dataset: Dataset,
    mesh: Mesh,
    batch_size: int,
    start: Callable[[Batch], Result],
    should_stop: Callable[[], bool] = lambda: False,
) -> Generator[tuple[Any, Result], None, None]:
    """Yield each batch of a split, every example once, as `results` does.

    Args:
      config: Section of the data.
      dataset: Examples of the split.
      mesh: Mesh of the devices that share a batch.
      batch_size: Number of examples; the last batch is padded, as its `mask` says.
      start: Function of a batch (1, B, ...) on the devices.
      should_stop: Asked before each batch is started; True ends the pass.
    """

    def batches() -> Generator[Any, None, None]:
        found = loader.eval_batches(config, dataset, mesh, batch_size)
        with contextlib.closing(found):
            for batch in found:
                if should_stop():
                    return
                yield batch

    return results(batches(), lambda batch: start(shared(mesh, batch, batch_size)))


def evaluate(
    eval_step: EvalStep,
    zero_sums: Sums,
    state: TrainState,
    dataset: Dataset,
    config: DataConfig,
    mesh: Mesh,
    task: Task,
    should_stop: Callable[[], bool] = lambda: False,
) -> Values | None:
    """Return the split's `loss`, the metrics of the task, and `num_examples`.

    None if `should_stop` became true on the way.
    """
    weights = state.eval_params, state.eval_model_state
    batch_size = eval_batch_size(config)
    sums = jax.device_put(zero_sums, sharding.replicated(mesh))
    pace, stopped = Pace(), False

    def stop() -> bool:
        nonlocal stopped
        stopped = should_stop()
        return stopped

    def start(batch: Batch) -> dict[str, Any]:
        nonlocal sums
        sums, kept = eval_step(*weights, sums, dataset.on_device, batch)
        pace.sent(sums)
        return kept

    found = over_split(config, dataset, mesh, batch_size, start, stop)
    kept = [of_batch for _, of_batch in found]
    return None if stopped else task.values(jax.device_get(sums), _join(kept))


def _join(batches: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what metrics keep of all examples, (N, ...) each, without padding."""
    if not batches[0]:
        return {}
    batches = jax.device_get(batches)
    whole = jax.tree.map(lambda *parts: np.concatenate(parts), *batches)
    return jax.tree.map(lambda x: x[whole["mask"] > 0], whole["kept"])


def eval_batch_size(config: DataConfig) -> int:
    return config.eval_batch_size or config.batch_size
