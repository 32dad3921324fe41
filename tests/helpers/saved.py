"""A small state that is saved and restored."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax

from jaxtrain.checkpoints.store import Checkpoints
from jaxtrain.config import CheckpointConfig
from jaxtrain.json_files.run_id import RunId
from jaxtrain.tasks.metrics import Goal


def make_state() -> dict[str, Any]:
    params = {"conv": {"kernel": jnp.arange(72.0).reshape(3, 3, 2, 4)}}
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.1))
    half = {"x": jnp.ones(3, jnp.bfloat16)}
    return {"params": params, "opt_state": tx.init(params), "empty": {}, "half": half}


STATE = make_state()
ABSTRACT = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), STATE
)


# Of states that are saved in no workdir.
RUN = RunId("0" * 32, "config.json")

ACCURACY = Goal("accuracy", higher=True)


@contextlib.contextmanager
def opened(folder: Path, best: Goal = ACCURACY, **config: Any) -> Iterator[Checkpoints]:
    saved = Checkpoints(folder, CheckpointConfig(**config), best, run=RUN)
    with contextlib.closing(saved):
        yield saved
