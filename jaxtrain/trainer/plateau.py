"""Plateau schedule: evaluations without improvement reduce the learning rate.

The best value and the number of evaluations without improvement are host-side state,
saved in `Progress.callbacks`; the factor of the learning rate is also in the state on
the devices.
"""

from typing import Any

from jaxtrain.config.schedule import PlateauSchedule
from jaxtrain.tasks.metrics import Goal
from jaxtrain.trainer.callback import Callback, Evaluation
from jaxtrain.trainer.run_state import RunState

NAME = "plateau"


class Plateau(Callback):
    """Callback that reduces the learning rate after evaluations without improvement."""

    def on_start(self, run: RunState) -> None:
        if run.trainer.plateau is not None:
            memory = run.progress.callbacks.get(NAME, {})
            run.set_rate_factor(memory.get("factor", 1.0))

    def on_eval(self, run: RunState, evaluation: Evaluation) -> None:
        goal, memories = run.trainer.plateau, run.progress.callbacks
        if goal is None or evaluation.split == "test":
            return
        config, before = run.trainer.config.optimizer.schedule, memories.get(NAME, {})
        assert isinstance(config, PlateauSchedule)
        value = evaluation.metrics[goal.metric]
        memories[NAME] = after_evaluation(config, before, goal, value)
        factor = memories[NAME]["factor"]
        if factor != before.get("factor", 1.0):
            event = f"plateau of {goal.metric}: the learning-rate factor is {factor:g}"
            run.log.write("event", evaluation.step, event=event)
            run.set_rate_factor(factor)


def after_evaluation(
    config: PlateauSchedule, before: dict[str, Any], goal: Goal, value: Any
) -> dict[str, Any]:
    """Return the host-side state of the plateau schedule after an evaluation.

    As in PyTorch's ReduceLROnPlateau with threshold=0, after more than `patience`
    evaluations in a row without improvement the learning rate is reduced, and the count
    restarts at 0.

    Args:
      config: Factor and patience of the schedule.
      before: Previous state: `factor`, `best` and `waited`; {} at first.
      goal: Monitored metric and its direction.
      value: Value of the metric; NaN and non-numbers are no improvement.
    """
    found = {"factor": 1.0, "best": None, "waited": 0, **before}
    if goal.improves(value, found["best"]):
        return {**found, "best": value, "waited": 0}
    if found["waited"] < config.patience:
        return {**found, "waited": found["waited"] + 1}
    return {**found, "factor": found["factor"] * config.factor, "waited": 0}
