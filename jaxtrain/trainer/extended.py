"""Warnings about a resumed run whose length was changed."""

from dataclasses import replace
from typing import Any

from jaxtrain.trainer.learning_rate import build_schedule, schedule_name
from jaxtrain.trainer.periods import make_timetable
from jaxtrain.trainer.setup import Setup
from jaxtrain.trainer.timetable import Timetable

# A change of the learning rate by more than this factor, either way, is a jump.
MAX_FACTOR = 1.5


def describe_jump(
    setup: Setup, saved: dict[str, Any], step: int, taken: int
) -> list[str]:
    """Describe a jump of the learning rate in a run whose length was changed.

    A jump differs from both the last rate and the old schedule's next rate, so that
    scheduled drops do not count.

    Args:
      saved: Config of the checkpoint, as JSON.
      taken: Number of optimizer steps, without skipped steps.
    """
    length = {name: saved["train"][name] for name in ("epochs", "steps")}
    # With 1, `make_timetable` never refuses the value for the old length.
    train = replace(setup.config.train, **length, steps_per_call=1)
    before = make_timetable(
        replace(setup.config, train=train),
        setup.timetable.num_examples,
        has_validation=setup.splits.validation is not None,
    )
    after = setup.timetable
    if before.total_steps == after.total_steps or step >= after.total_steps:
        return []
    if setup.config.optimizer.learning_rate is None or taken == 0:
        return []

    def rate(timetable: Timetable, step: int) -> float:
        schedule = build_schedule(setup.config, timetable)
        assert schedule is not None
        return float(schedule(step))

    last, next_ = rate(before, taken - 1), rate(after, taken)
    if not (_differ(last, next_) and _differ(rate(before, taken), next_)):
        return []
    return [
        f"the learning rate jumps from {last:.3g} at step {step} to {next_:.3g} at the "
        f"next: the {schedule_name(setup.config)} schedule spans the whole run, "
        f"which was {before.total_steps} steps long and is now {after.total_steps}. A "
        "run of that length from the start has no such jump"
    ]


def _differ(one: float, other: float) -> bool:
    return max(one, other) > MAX_FACTOR * min(one, other)
