"""A run that hangs ends, and says where it hung."""

import time

import pytest

from jaxtrain.processes.watchdog import Watchdog
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe
from tests.helpers.runs import read_lines, read_summary
from tests.helpers.waiting import wait_for_lines

CONFIG = recipe(
    train="TrainConfig(steps=24, eval_every_steps=100, step_timeout_seconds=4)",
    checkpoint="CheckpointConfig(every_steps=8)",
    logging="LoggingConfig(every_steps=1)",
)


def test_hang_ends_with_75_and_the_stacks(cli: Cli, write_config):
    """Within the timeout and 5 s; the same command then goes on."""
    words = ["--config", write_config(CONFIG), "--workdir", "run"]
    process = cli.start(*words, JAXTRAIN_FAULT="hang@step:20")
    run = cli.directory / "run"
    # Those up to eight steps before are still to be told.
    wait_for_lines(run / "metrics.jsonl", 8, process)
    hung = time.monotonic()
    _, stderr = process.communicate(timeout=60)
    assert time.monotonic() - hung < 4 + 5
    assert process.returncode == 75, stderr
    assert "error: no step was done for 4 s (train.step_timeout_seconds)" in stderr
    assert "the same command goes on from the last checkpoint" in stderr
    assert 'faults.py", line' in stderr
    assert "before_call" in stderr
    again = cli(*words)
    assert again.code == 0, again.stderr
    assert read_summary(run)["step"] == 24
    assert [line["step"] for line in read_lines(run, "event")] == [16]


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The limits that were passed, in place of the process's end."""
    limits: list[float] = []

    def note(self: Watchdog, limit: float) -> None:
        limits.append(limit)
        self._done.set()

    monkeypatch.setattr(Watchdog, "_end", note)
    return limits


def test_silence_ends_the_run(ends: list[float]):
    with Watchdog(0.2, lambda: False):
        time.sleep(1)
    assert ends == [0.2]


def test_steps_compilation_and_saves_do_not(ends: list[float]):
    compiling = True
    with Watchdog(0.4, lambda: compiling) as watchdog:
        time.sleep(1)
        compiling = False
        with watchdog.saving():
            time.sleep(1)
        for _ in range(10):
            time.sleep(0.1)
            watchdog.beat()
    assert ends == []


def test_no_limit_no_end(ends: list[float]):
    with Watchdog(None, lambda: False):
        time.sleep(0.5)
    assert ends == []
