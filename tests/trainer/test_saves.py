"""Storage that fails under a run: a real disk that is too small, filled and freed."""

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jaxtrain.checkpoints import retention
from jaxtrain.checkpoints.folder import COMMITTED
from jaxtrain.cli import main
from jaxtrain.records.run_log import RunLog
from tests.helpers.disks import failures, fill, names, whole
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe
from tests.helpers.runs import read_lines, read_summary
from tests.helpers.waiting import PATIENCE

# A checkpoint of this run takes about 0.6 MB.
CONFIG = recipe(
    data='DataConfig(source="digits", batch_size=64)',
    model='ConvNetConfig(name="convnet")',
    optimizer="AdamWConfig(learning_rate=1e-3)",
    train="TrainConfig(steps=60, ema_decay=0.9, eval_every_steps=100)",
    logging="LoggingConfig(every_steps=1)",
)


# What Orbax leaves of a failed save complains, once collected, that its event loop
# is closed: within the test that has failed the save, and not in a later one.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture(autouse=True)
def collect_what_failed_saves_leave() -> Iterator[None]:
    gc.freeze()  # To collect what is there already takes seconds.
    yield
    gc.collect()
    gc.unfreeze()


@pytest.fixture(autouse=True)
def read_each_save_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the last one read stays, whichever that is, until the end."""
    monkeypatch.setattr(retention, "READING_SHARE", 1)


def at_lines(monkeypatch: pytest.MonkeyPatch, act: Callable[[str, int], Any]) -> None:
    """Call `act(kind, step)` after each line of metrics: at the same place each run."""
    record = RunLog.record

    def record_and_act(self: RunLog, kind: str, step: int, **values: Any) -> None:
        record(self, kind, step, **values)
        act(kind, step)

    monkeypatch.setattr(RunLog, "record", record_and_act)


@pytest.mark.slow
def test_run_goes_on_when_its_disk_fills_and_tells_at_the_end(
    disk: Path,
    write_config: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
):
    """The saves at 50 and 60 fail; the one at 40, and what is older, stays."""
    words = ["--config", str(write_config(CONFIG)), "--workdir", str(disk / "run")]
    with monkeypatch.context() as patch:
        at_lines(patch, lambda kind, step: step == 41 and fill(disk, 300_000, after=40))
        assert main(words) == 1
    error = capfd.readouterr().err
    assert "warning: could not save step 50: No space left on device" in error
    assert "failure 1 of 3 in a row; training continues" in error
    assert "error: could not save step 60: No space left on device" in error
    assert "kB free" in error
    assert "Traceback" not in error
    assert [line["step"] for line in read_lines(disk / "run", "train")][-1] == 60
    ((step, _),) = failures(disk)
    assert 50 <= step <= 60
    assert whole(disk) == {"20", "30", "40"}
    assert not (disk / "run" / "summary.json").exists()
    (disk / "ballast").unlink()
    assert main(words) == 0
    assert read_summary(disk / "run")["step"] == 60
    assert names(disk) == whole(disk) == {"40", "50", "60"}
    assert [line["step"] for line in read_lines(disk / "run", "event")][-1] == 40


# The command line, whose checkpoints cannot be written between the one of step 40 and
# the first failure: the folder is a mount of its own, as the log is open.
READ_ONLY = """
import pathlib, subprocess, time
from jaxtrain.__main__ import run
from jaxtrain.records.run_log import RunLog

folder = pathlib.Path("{folder}")

def record(self, kind, step, **values):
    original(self, kind, step, **values)
    if kind == "train" and step == 41:
        while not (folder / "40" / "{committed}").exists():
            time.sleep(0.01)
        subprocess.run(["mount", "--bind", folder, folder], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
    if "could not save" in values.get("event", ""):
        subprocess.run(["umount", "--lazy", folder], check=True)

original, RunLog.record = RunLog.record, record
run()
"""


@pytest.mark.slow
def test_run_whose_disk_is_read_only_for_a_while_ends_well(
    disk: Path, cli: Cli, write_config: Callable[..., Path]
):
    words = ["--config", write_config(CONFIG), "--workdir", disk / "run"]
    words += ["--train.steps", 240, "--checkpoint.every-steps", 40]
    folder = disk / "run" / "checkpoints"
    program = READ_ONLY.format(folder=folder, committed=COMMITTED)
    process = cli.start(*words, program=program)
    # Orbax would have the process wait for five minutes when all is done.
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, told
    assert "could not save step 80: Read-only file system" in told
    assert "Traceback" not in told
    assert failures(disk)[0][0] <= 120
    assert {"160", "200", "240"} <= names(disk)


@pytest.mark.slow
def test_three_failures_in_a_row_stop_the_run(
    disk: Path,
    write_config: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
):
    """Not a byte is left, so the log cannot be written either."""
    at_lines(monkeypatch, lambda kind, step: step == 11 and fill(disk, 0, after=10))
    words = ["--config", str(write_config(CONFIG)), "--workdir", str(disk / "run")]
    assert main(words) == 1
    error = capfd.readouterr().err
    assert "error: could not save step 40" in error
    assert "failure 3 of 3 in a row. The last good checkpoint is 10" in error
    assert "metrics.jsonl: No space left on device" in error
    assert "Traceback" not in error
    assert whole(disk) == {"10"}


@pytest.mark.slow
def test_too_small_disk_is_told_before_the_first_step(
    disk: Path, write_config: Callable[..., Path], capfd: pytest.CaptureFixture[str]
):
    fill(disk, 2_000_000)
    words = ["--config", str(write_config(CONFIG)), "--workdir", str(disk / "run")]
    assert main(words) == 2
    error = capfd.readouterr().err
    assert "take up to 3." in error
    assert "the disk has 2.0 MB of free space" in error
    assert "checkpoint.keep = 3" in error
    assert not read_lines(disk / "run")


@pytest.mark.slow
def test_checkpoints_of_the_run_itself_are_room_for_its_new_ones(
    disk: Path, write_config: Callable[..., Path]
):
    words = ["--config", str(write_config(CONFIG)), "--workdir", str(disk / "run")]
    assert main([*words, "--train.steps", "30"]) == 0
    fill(disk, 2_000_000)
    assert main([*words, "--train.steps", "40"]) == 0
