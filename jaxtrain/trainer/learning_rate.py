"""Learning-rate schedule of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxtrain.errors import UserError
from jaxtrain.trainer.timetable import Timetable
from jaxtrain.training.schedules import (
    Schedule,
    make_schedule,
    make_two_cycles,
    with_constant_end,
)

if TYPE_CHECKING:
    from jaxtrain.config import Config


def build_schedule(config: Config, timetable: Timetable) -> Schedule | None:
    """Create the learning-rate schedule; None for an optimizer with a line search.

    Raises:
      UserError: An option is invalid for the schedule or the length of the run.
    """
    schedule = _before_swa(config, timetable)
    factor, peak = config.train.swa_factor, config.optimizer.learning_rate
    if factor is None or timetable.swa is None or schedule is None or peak is None:
        return schedule
    return with_constant_end(schedule, timetable.swa[0], factor * peak)


def _before_swa(config: Config, timetable: Timetable) -> Schedule | None:
    """Create the schedule, without the constant learning rate during SWA."""
    peak = config.optimizer.learning_rate
    if config.train.fine_tune:
        if peak is None:
            raise UserError(
                "train.fine_tune requires optimizer.learning_rate: set "
                "optimizer.learning_rate, such as 1e-3"
            )
        assert timetable.unfreeze_step is not None
        return make_two_cycles(peak, timetable.unfreeze_step, timetable.total_steps)
    if peak is None:
        return None
    return make_schedule(
        config.optimizer,
        total_steps=timetable.total_steps,
        warmup_steps=timetable.warmup_steps,
    )


def schedule_name(config: Config) -> str:
    """Name of the schedule for the start-up table."""
    return "fine_tune" if config.train.fine_tune else config.optimizer.schedule.name
