"""Each second of a run is charged to one activity, over all of its attempts."""

from pathlib import Path

import pytest

from jaxtrain.trainer.clock import ACTIVITIES, Clock
from jaxtrain.trainer.progress import Progress
from tests.helpers.processes import Cli
from tests.helpers.recipes import EIGHT_STEPS
from tests.helpers.runs import read_summary


class FakeTime:
    """Seconds that only a test moves on, and those of them that went to compilation."""

    def __init__(self):
        self.now = self.compiling = 0.0

    def clock(self, began: float | None = None) -> Clock:
        return Clock(
            began, compile_seconds=lambda: self.compiling, now=lambda: self.now
        )

    def run(self, clock: Clock) -> None:
        """Spend a power of two on each activity, so that sums are exact."""
        self.now += 1  # setup
        clock.switch("other")
        self.now += 2
        with clock.timing("step"):
            self.now += 4
            with clock.timing("data_wait"):
                self.now += 8
            self.now, self.compiling = self.now + 16, self.compiling + 16
            with clock.timing("evaluation"):
                self.now, self.compiling = self.now + 64, self.compiling + 32
            with pytest.raises(OSError), clock.timing("checkpoint"):
                self.now += 64
                raise OSError


def test_the_activities_add_up_to_the_whole():
    time = FakeTime()
    time.now = 128.0
    clock, progress = time.clock(began=0.0), Progress()
    time.run(clock)
    expected = {"setup": 129, "compile": 48, "data_wait": 8, "step": 4}
    expected |= {"evaluation": 32, "checkpoint": 64, "lost": 0, "other": 2}
    assert list(clock.seconds()) == list(ACTIVITIES)
    assert clock.seconds() == expected
    assert sum(clock.seconds().values()) == time.now == clock.wall_seconds()
    clock.update(progress)
    assert progress.seconds == expected and progress.step_seconds == 12
    assert progress.train_seconds == 8 + 4 + 32 + 64 + 2


@pytest.mark.slow
def test_a_killed_run_tells_what_was_lost(cli: Cli, write_config):
    """The evaluation of step 6 comes after the checkpoint of step 4, or of none."""
    config, run = write_config(EIGHT_STEPS), cli.directory / "run"
    # Else a new best evaluation would be saved, too, and nothing lost.
    saves = ["--checkpoint.every-steps", 4, "--checkpoint.keep-best", 0]
    words = ["--config", config, "--workdir", run, *saves]
    killed = cli.start(*words, fault="kill@step:8")
    killed.communicate()
    assert killed.returncode == -9
    cli.done(*words)
    assert_adds_up(run, lost=True)
    stopped = cli.directory / "stopped"
    words = ["--config", config, "--workdir", stopped]
    cli.done(*words, "--train.stop-after-steps", 5)
    cli.done(*words)
    assert_adds_up(stopped, lost=False)


def assert_adds_up(run: Path, *, lost: bool) -> None:
    found = read_summary(run)
    seconds = found["seconds"]
    assert list(seconds) == list(ACTIVITIES) and min(seconds.values()) >= 0
    assert (seconds["lost"] > 0) is lost
    assert sum(seconds.values()) == pytest.approx(found["wall_seconds"], rel=1e-12)
    assert found["goodput"] == seconds["step"] / found["wall_seconds"]
    for activity in ("setup", "compile", "step", "evaluation", "checkpoint"):
        assert seconds[activity] > 0, activity
