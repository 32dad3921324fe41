"""A run that hangs ends, and says where it hung."""

import pytest

from jaxtrain.checkpoints.folder import COMMITTED
from jaxtrain.processes import watchdog as watchdog_lib
from jaxtrain.processes.watchdog import Watchdog
from tests.helpers.processes import HANG_TOLD, Cli
from tests.helpers.recipes import recipe
from tests.helpers.runs import read_lines, read_summary
from tests.helpers.waiting import PATIENCE, wait_until

CONFIG = recipe(
    train="TrainConfig(steps=24, eval_every_steps=100, step_timeout_seconds=600)",
    checkpoint="CheckpointConfig(every_steps=8)",
    logging="LoggingConfig(every_steps=1)",
)
# The command line, whose watchdog sees time pass when the test says so.
PROGRAM = f"""
import pathlib, time, types
from jaxtrain.processes import watchdog

def monotonic():
    return time.monotonic() + 1000 * pathlib.Path("late").exists()

watchdog.time = types.SimpleNamespace(monotonic=monotonic)
{HANG_TOLD}"""


@pytest.mark.slow
def test_hang_ends_with_75_and_the_stacks(cli: Cli, write_config):
    """The same command then goes on."""
    words = ["--config", write_config(CONFIG), "--workdir", "run"]
    process = cli.start(*words, program=PROGRAM, fault="hang@step:20")
    run = cli.directory / "run"
    saved, hangs = run / "checkpoints" / "16" / COMMITTED, cli.directory / "hangs"
    wait_until(lambda: saved.exists() and hangs.exists(), process)
    (cli.directory / "late").touch()
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 75, stderr
    assert "error: no step finished for 600 s (train.step_timeout_seconds)" in stderr
    assert "the same command resumes from the last checkpoint" in stderr
    assert 'faulty.py", line' in stderr
    assert "in strike" in stderr
    cli.done(*words)
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


class FakeClock:
    """A clock that only a test moves on."""

    def __init__(self):
        self.now, self.looks = 0.0, 0

    def monotonic(self) -> float:
        self.looks += 1
        return self.now

    def move_on(self, seconds: float) -> None:
        """Let time pass, and the watchdog see that."""
        self.now += seconds
        looks = self.looks
        # Two at most each time that it looks, one of which has begun.
        wait_until(lambda: self.looks >= looks + 4)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    clock = FakeClock()
    monkeypatch.setattr(watchdog_lib, "time", clock)
    return clock


def test_silence_ends_the_run(ends: list[float], clock: FakeClock):
    with Watchdog(0.4, lambda: False):
        clock.now += 0.5
        wait_until(lambda: ends)
    assert ends == [0.4]


def test_steps_compilation_and_saves_do_not(ends: list[float], clock: FakeClock):
    compiling = True
    with Watchdog(0.04, lambda: compiling) as watchdog:
        clock.move_on(100.0)
        compiling = False
        with watchdog.saving():
            clock.move_on(1000.0)
        for _ in range(4):
            clock.move_on(0.03)
            watchdog.beat()
    assert ends == []
