"""The plateau schedule: evaluations without improvement reduce the learning rate.

What it remembers is in the progress of the run, which is saved with each checkpoint.
The state on the devices has the factor alone, for the steps to read.
"""

from typing import Any

import jax
import numpy as np

from jaxtrain.config import OptimizerConfig
from jaxtrain.tasks.metrics import Goal
from jaxtrain.training.schedules import PLATEAU_FACTOR, PLATEAU_PATIENCE
from jaxtrain.training.state import TrainState, with_extra
from jaxtrain.training.transforms.plateau import PLATEAU


def after_evaluation(
    config: OptimizerConfig, before: dict[str, Any], goal: Goal, value: Any
) -> dict[str, Any]:
    """Return what the schedule remembers after an evaluation.

    As PyTorch's ReduceLROnPlateau without a threshold: once more than `patience`
    evaluations in a row have not improved on the best, the rate is reduced, and they
    are counted anew.

    Args:
      config: Section of the optimizer.
      before: What it remembered: `factor`, `best` and `waited`; {} at first.
      goal: Metric that it watches.
      value: Value of that metric, of any type.
    """
    factor, patience = config.plateau_factor, config.plateau_patience
    factor = PLATEAU_FACTOR if factor is None else factor
    patience = PLATEAU_PATIENCE if patience is None else patience
    found = {"factor": 1.0, "best": None, "waited": 0, **before}
    if goal.improves(value, found["best"]):
        return {**found, "best": value, "waited": 0}
    if found["waited"] < patience:
        return {**found, "waited": found["waited"] + 1}
    return {**found, "factor": found["factor"] * factor, "waited": 0}


def with_factor(state: TrainState, memory: dict[str, Any]) -> TrainState:
    """Return the state whose steps use the factor that the schedule remembers."""
    if PLATEAU not in state.extras:
        return state
    old = state.extras[PLATEAU]["factor"]
    factor = jax.device_put(np.float32(memory.get("factor", 1.0)), old.sharding)
    return with_extra(state, PLATEAU, {"factor": factor})
