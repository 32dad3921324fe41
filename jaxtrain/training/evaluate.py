"""A full pass over a split, every example counted once."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from jaxtrain.config import DataConfig
from jaxtrain.data import loader
from jaxtrain.data.loader import Dataset
from jaxtrain.parallel import sharding
from jaxtrain.tasks.base import Sums, Task, Values
from jaxtrain.training.calls_ahead import Pace
from jaxtrain.training.state import TrainState

EvalStep = Callable[[Any, Any, Any, Any, Any], Any]


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
    batch_size = eval_batch_size(config)
    sums = jax.device_put(zero_sums, sharding.replicated(mesh))
    pace = Pace()
    batches_on_host = loader.eval_batches(config, dataset, mesh, batch_size)
    kept: list[dict[str, Any]] = []
    for batch in batches_on_host:
        if should_stop():
            return None
        local = jax.tree.map(lambda rows: rows[None], batch)
        batches = sharding.put_batch(mesh, local, batch_size)
        params, model_state = state.eval_params, state.eval_model_state
        args = params, model_state, sums, dataset.on_device, batches
        sums, of_batch = eval_step(*args)
        kept.append(of_batch)
        pace.sent(sums)
    return task.values(jax.device_get(sums), _join(kept))


def _join(batches: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what metrics keep of all examples, (N, ...) each, without padding."""
    if not batches[0]:
        return {}
    batches = jax.device_get(batches)
    whole = jax.tree.map(lambda *parts: np.concatenate(parts), *batches)
    return jax.tree.map(lambda x: x[whole["mask"] > 0], whole["kept"])


def eval_batch_size(config: DataConfig) -> int:
    return config.eval_batch_size or config.batch_size
