"""Durations in steps, and when something is due."""

import dataclasses
from typing import Any

import pytest

from jaxtrain.config import (
    CheckpointConfig,
    Config,
    ConvNetConfig,
    DataConfig,
    LBFGSConfig,
    LoggingConfig,
    OptimizerConfig,
    PlateauSchedule,
    SGDConfig,
    TrainConfig,
)
from jaxtrain.errors import UserError
from jaxtrain.trainer.periods import make_timetable
from tests.helpers.parts import optimizer_config
from tests.helpers.rows import each_row


def plan(num_examples: int = 1000, has_validation: bool = True, **sections):
    sections = {"data": DataConfig(batch_size=32), **sections}
    return make_timetable(
        Config(**sections), num_examples, has_validation=has_validation
    )


def test_an_epoch_is_the_full_batches():
    assert plan().steps_per_epoch == 31  # 1000 = 31 * 32 + 8


@each_row(
    ("train", "steps"),
    [
        (TrainConfig(epochs=3), 93),
        (TrainConfig(epochs=0.5), 16),
        (TrainConfig(steps=77), 77),
    ],
)
def test_length_in_epochs_or_steps(train: TrainConfig, steps: int):
    assert plan(train=train).total_steps == steps


@each_row(
    ("optimizer", "steps"),
    [
        (SGDConfig(), 0),
        (SGDConfig(warmup_epochs=2), 62),
        (SGDConfig(warmup_steps=5), 5),
        (SGDConfig(warmup_fraction=0.05), 16),
    ],
)
def test_warmup_in_epochs_steps_or_a_fraction(optimizer: OptimizerConfig, steps: int):
    assert plan(optimizer=optimizer).warmup_steps == steps


@each_row(
    ("optimizer", "step"),
    [
        ({"schedule": "linear"}, 900),
        # Where (1 + cos(pi x)) / 2 is a tenth.
        ({"schedule": "cosine"}, 795),
        ({"schedule": "cosine", "warmup_fraction": 0.5}, 898),
        ({"schedule": "step", "milestones": (0.2, 0.3)}, 750),
        ({"schedule": "step", "milestones": (0.8, 0.9)}, 800),
        ({"schedule": "cosine", "end_factor": 0.2}, None),
        ({"schedule": "constant"}, None),
        ({"schedule": "plateau"}, None),
    ],
)
def test_ranges_stay_late_and_at_a_low_rate(
    optimizer: dict[str, Any], step: int | None
):
    """Within 0.25 % of the run, by which the rate is looked up."""
    times = make_timetable(
        Config(
            model=ConvNetConfig(quantize="int8"),
            optimizer=optimizer_config(learning_rate=0.3, **optimizer),
            train=TrainConfig(steps=1000),
        ),
        1000,
        has_validation=True,
    )
    if step is None:
        assert times.fix_step is None
    else:
        assert times.fix_step is not None
        assert step <= times.fix_step <= step + 3


def test_evaluations_and_checkpoints_come_every_epoch_by_default():
    assert plan().eval_every_steps == 31
    assert plan().save_every_steps == 31
    assert plan(has_validation=False).eval_every_steps is None


@each_row("train", [{}, {"eval_every_steps": 20}, {"eval_every_steps": 10**6}])
def test_the_evaluations_that_are_left_are_counted(train: dict[str, Any]):
    made = plan(train=TrainConfig(epochs=2, **train))
    every, total = made.eval_every_steps, made.total_steps
    due = [s for s in range(1, total + 1) if s % (every or 1) == 0 or s == total]
    for step in range(total + 1):
        assert made.evaluations_after(step) == sum(s > step for s in due)
    assert plan(has_validation=False).evaluations_after(0) == 0


def test_calls_of_several_steps_end_at_what_is_due():
    p = plan(
        train=TrainConfig(steps=23, eval_every_steps=10),
        checkpoint=CheckpointConfig(every_steps=1000),
        logging=LoggingConfig(every_steps=1000),
    )
    assert list(p.call_sizes(0, 4)) == [4, 4, 1, 1, 4, 4, 1, 1, 1, 1, 1]
    assert list(p.call_sizes(18, 4)) == [1, 1, 1, 1, 1]
    # Where a run is to stop does not change the calls before it.
    stopped = dataclasses.replace(p, stop_after_steps=5)
    assert list(stopped.call_sizes(0, 4)) == list(p.call_sizes(0, 4))


def test_steps_per_call_of_the_shortest_interval_has_an_effect():
    train = TrainConfig(steps=100, eval_every_steps=22, steps_per_call=22)
    p = plan(train=train, logging=LoggingConfig(every_steps=50))
    assert list(p.call_sizes(0, 22))[:2] == [22, 1]  # A checkpoint at step 31.


@each_row(
    ("train", "swa"),
    [
        (TrainConfig(epochs=9), None),
        (TrainConfig(epochs=9, swa_start_epochs=6), (186, 31)),
        (TrainConfig(steps=9, swa_start_epochs=0.001), (1, 31)),
        (TrainConfig(epochs=9, swa_start_epochs=9), (279, 31)),
    ],
)
def test_weights_are_averaged_from_an_epoch_on_after_each_epoch(
    train: TrainConfig, swa: tuple[int, int] | None
):
    assert plan(train=train).swa == swa


@each_row(
    ("sections", "named"),
    [
        ({}, "31 steps (train.eval_every_epochs and checkpoint.every_epochs);"),
        ({"logging": LoggingConfig(every_steps=9)}, "9 steps (logging.every_steps)"),
        (
            {"checkpoint": CheckpointConfig(every_steps=9)},
            "9 steps (checkpoint.every_steps); set at most 9",
        ),
        ({"train": TrainConfig(steps=2)}, "2 steps (train.steps);"),
    ],
)
def test_steps_per_call_without_effect_is_refused(sections, named: str):
    train = sections.get("train", TrainConfig(epochs=10))
    sections = {**sections, "train": dataclasses.replace(train, steps_per_call=32)}
    with pytest.raises(UserError) as error:
        plan(**sections)
    assert "train.steps_per_call = 32: a call ends at the next" in str(error.value)
    assert named in str(error.value)


def test_batch_larger_than_the_data_is_refused():
    with pytest.raises(
        UserError, match=r"batch_size = 32 .* 31 examples: use at most 31"
    ):
        plan(num_examples=31)


@each_row(
    ("has_validation", "sections", "told"),
    [
        (
            False,
            {"train": TrainConfig(steps=9, early_stop_patience=2)},
            "early_stop_patience = 2",
        ),
        (
            False,
            {"train": TrainConfig(steps=9, eval_every_steps=2)},
            "eval_every_steps have no effect",
        ),
        (
            False,
            {"optimizer": SGDConfig(schedule=PlateauSchedule())},
            "'plateau': the run has no validation split",
        ),
        (
            True,
            {"optimizer": LBFGSConfig()},
            r"set data\.batch_size to 1000",
        ),
        (
            True,
            {"train": TrainConfig(epochs=2, swa_start_epochs=3)},
            r"swa_start_epochs = 3 \(93 steps\).* \(62",
        ),
        (
            True,
            {"train": TrainConfig(epochs=1e30)},
            r"train\.\w+ = .* steps: shorten",
        ),
    ],
)
def test_what_cannot_have_an_effect_is_refused(
    has_validation: bool, sections: dict[str, Any], told: str
):
    with pytest.raises(UserError, match=told):
        plan(has_validation=has_validation, **sections)
