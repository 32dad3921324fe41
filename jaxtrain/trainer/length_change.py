"""Warning about a resumed run whose length was changed."""

from dataclasses import replace
from typing import Any

from jaxtrain.trainer.learning_rate import build_schedule, schedule_name
from jaxtrain.trainer.periods import make_timetable
from jaxtrain.trainer.setup import Setup
from jaxtrain.trainer.timetable import Timetable

# A jump is an increase or a decrease of the learning rate by more than this factor.
MAX_FACTOR = 1.5


def describe_jump(
    setup: Setup, saved: dict[str, Any], step: int, taken: int
) -> list[str]:
    """Describe the jump of the learning rate if a resumed run has another length.

    A jump is a large change at the next step that a run of the old length would not
    have. Scheduled drops are therefore not jumps.

    Args:
      setup: Setup of the resumed run.
      saved: Config of the checkpoint, as JSON.
      step: Number of completed steps.
      taken: Number of optimizer steps: completed steps that were not skipped.

    Returns:
      The warning, or [] without a jump.
    """
    length = {name: saved["train"][name] for name in ("epochs", "steps")}
    # `steps_per_call` may be too large for the old length; 1 is always valid.
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
        f"next step: the {schedule_name(setup.config)} schedule spans the full run, "
        f"which had {before.total_steps} steps and now has {after.total_steps}. Start "
        "a new run of this length to avoid the jump"
    ]


def _differ(one: float, other: float) -> bool:
    return max(one, other) > MAX_FACTOR * min(one, other)
