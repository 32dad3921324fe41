"""What is other in a run that goes on than in the one that stopped, and allowed."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jaxtrain.run.phases import build_schedule, schedule_name
from jaxtrain.run.setup import Setup
from jaxtrain.run.timetable import Timetable, make_timetable

# A change of the learning rate by more than this factor, either way, is a jump.
MAX_FACTOR = 1.5


def describe_changed(
    now: Mapping[str, str], saved: Mapping[str, str], step: int
) -> list[str]:
    """List the files with parts of the user's own that have changed.

    Args:
      now: digests by file.
      saved: those that the checkpoint was saved under; unknown ones are missing.
      step: of the checkpoint.
    """
    changed = [
        file for file, digest in saved.items() if now.get(file, digest) != digest
    ]
    return [f"{file} has changed since step {step} was saved" for file in changed]


def describe_jump(
    setup: Setup, saved: dict[str, Any], step: int, taken: int
) -> list[str]:
    """Describe a jump of the learning rate in a run resumed with another length.

    A schedule may drop by itself; what counts is that the old one would not have come
    to the new rate.

    Args:
      setup: as it goes on.
      saved: the config that the checkpoint was saved under.
      step: of the checkpoint.
      taken: steps of these that the optimizer took.
    """
    before, after = _timetable_of_length(setup, saved["train"]), setup.timetable
    if before.total_steps == after.total_steps or step >= after.total_steps:
        return []
    if setup.config.optimizer.learning_rate is None or taken == 0:
        return []
    last, next_ = _rate(setup, before, taken - 1), _rate(setup, after, taken)
    if not (_differ(last, next_) and _differ(_rate(setup, before, taken), next_)):
        return []
    return [
        f"the learning rate jumps from {last:.3g} at step {step} to {next_:.3g} at the "
        f"next: the {schedule_name(setup.config)} schedule spans the whole run, "
        f"which was {before.total_steps} steps long and is now {after.total_steps}. A "
        "run of that length from the start has no such jump"
    ]


def _timetable_of_length(setup: Setup, saved: dict[str, Any]) -> Timetable:
    """Return the timetable of this run with the saved length."""
    length = {name: saved[name] for name in ("epochs", "steps", "examples")}
    # More steps a call than that length has is no error here.
    train = replace(setup.config.train, **length, steps_per_call=1)
    return make_timetable(
        replace(setup.config, train=train),
        setup.timetable.num_examples,
        has_validation=setup.splits.validation is not None,
    )


def _rate(setup: Setup, timetable: Timetable, step: int) -> float:
    schedule = build_schedule(setup.config, timetable)
    assert schedule is not None
    return float(schedule(step))


def _differ(one: float, other: float) -> bool:
    return max(one, other) > MAX_FACTOR * min(one, other)
