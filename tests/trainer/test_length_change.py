"""A run that goes on under another length: is its learning rate told to jump?"""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from jaxtrain.cli import main
from jaxtrain.config import (
    Config,
    TrainConfig,
)
from jaxtrain.trainer.length_change import describe_jump
from jaxtrain.trainer.setup import build_setup
from tests.helpers.parts import optimizer_config
from tests.helpers.recipes import recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import read_lines


def config(steps: int, **optimizer: Any) -> Config:
    return Config(
        optimizer=optimizer_config("sgd", learning_rate=0.1, **optimizer),
        train=TrainConfig(steps=steps),
    )


STEP = {"schedule": "step", "milestones": (0.5,), "factor": 0.1}


@pytest.mark.slow
@each_row(
    ("optimizer", "old", "new", "step", "jump"),
    [
        ({"schedule": "cosine"}, 100, 200, 100, ("2.47e-05", "0.05")),
        ({"schedule": "linear"}, 200, 101, 100, ("0.0505", "0.00099")),
        ({"schedule": "one_cycle"}, 100, 1000, 99, ("", "")),
        (STEP, 100, 200, 60, ("0.01", "0.1")),
        # None: there is no jump.
        ({"schedule": "constant"}, 100, 200, 100, None),
        ({"schedule": "cosine", "warmup_steps": 20}, 100, 200, 1, None),
        ({"schedule": "cosine"}, 100, 100, 90, None),
        (STEP, 100, 200, 100, None),
    ],
)
def test_jumps(
    optimizer: dict[str, Any],
    old: int,
    new: int,
    step: int,
    jump: tuple[str, str] | None,
):
    setup = build_setup(config(new, **optimizer))
    told = describe_jump(setup, asdict(config(old, **optimizer)), step, step)
    if jump is None:
        assert told == []
    else:
        (message,) = told
        for part in (*jump, f"had {old} steps and now has {new}"):
            assert part in message


def test_the_steps_that_the_optimizer_took_count():
    """Of 100 steps 50 were skipped: the rate is that of the 50th."""
    setup = build_setup(config(200, schedule="linear"))
    told = describe_jump(setup, asdict(config(100, schedule="linear")), 100, 50)
    assert told == []


def test_a_saved_setting_that_is_refused_today_does_not_end_the_run():
    """More steps a call than the run has: now 1, as the message has asked for."""
    setup = build_setup(config(200, schedule="linear"))
    saved = asdict(config(100, schedule="linear"))
    saved["train"]["steps_per_call"] = 1000
    told = describe_jump(setup, saved, 100, 100)
    assert len(told) == 1 and "had 100 steps" in told[0]


@pytest.mark.slow
def test_a_longer_run_tells_of_the_jump(
    write_config: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    optimizer = "SGDConfig(learning_rate=0.1, schedule=CosineSchedule())"
    config = write_config(recipe(optimizer=optimizer))
    words = ["--config", str(config), "--workdir", str(tmp_path / "run")]
    for steps, told in (("4", False), ("8", True), ("8", False)):
        assert main([*words, "--train.steps", steps]) == 0
        stderr = capsys.readouterr().err
        assert ("warning: the learning rate jumps from" in stderr) == told, stderr
    events = [line["event"] for line in read_lines(tmp_path / "run", "event")]
    assert len(events) == 2
    assert any("which had 4 steps and now has 8" in e for e in events)
