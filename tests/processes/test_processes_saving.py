"""Several processes, and checkpoints that fail: a real disk, files, signals."""

import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from jaxtrain.checkpoints.folder import COMMITTED, DAMAGED
from tests.helpers.disks import failures, fill, names
from tests.helpers.processes import Cli, run_two, two
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import read_lines, read_summary
from tests.helpers.waiting import PATIENCE, wait_until

# With fsdp its larger arrays are shared between the processes.
CONFIG = recipe(
    model='ConvNetConfig(name="convnet", width=0.5)',
    optimizer="AdamWConfig(learning_rate=1e-3)",
    train="TrainConfig(steps=30, ema_decay=0.9, eval_every_steps=100)",
)


# The command line, whose disk is freed as soon as a save has failed.
FREED = """
import pathlib
from jaxtrain.__main__ import run
from jaxtrain.records.run_log import RunLog

def record(self, kind, step, **values):
    original(self, kind, step, **values)
    if "could not save" in values.get("event", ""):
        pathlib.Path("{ballast}").unlink(missing_ok=True)

original, RunLog.record = RunLog.record, record
run()
"""


@pytest.mark.slow
def test_two_processes_go_on_when_their_disk_fills_and_is_freed(
    disk: Path, cli: Cli, write_config: Callable[..., Path]
):
    """Told within one interval, and nothing of the failed save is left."""
    run = disk / "run"
    words = ["--config", write_config(CONFIG), "--workdir", run]
    words += ["--checkpoint.every-steps", "30", "--logging.every-steps", "15"]
    words += ["--train.steps", "100000", "--parallel.preset", "fsdp"]
    program = FREED.format(ballast=disk / "ballast")
    both = [cli.start(*each, program=program) for each in two(*words)]
    wait_until((run / "checkpoints" / "30" / COMMITTED).exists, *both)
    fill(disk, 100_000)
    wait_until(lambda: failures(disk), *both)
    # The interval's, or that of an evaluation that found the best weights so far.
    failed = int(re.findall(r"could not save step (\d+)", failures(disk)[0][1])[0])
    assert str(failed) not in names(disk)
    wait_until(lambda: any(int(name) > failed for name in names(disk)), *both)
    both[0].send_signal(signal.SIGTERM)
    error = "".join(process.communicate(timeout=PATIENCE)[1] for process in both)
    assert [process.returncode for process in both] == [143, 143], error
    assert f"warning: could not save step {failed}: No space left on device" in error
    assert "failure 1 of 3 in a row; training continues" in error
    assert error.count("failure 1 of 3") == 1
    assert "Traceback" not in error
    one, other = re.findall(r"stopped: step (\d+) is saved", error)
    assert one == other
    assert one in names(disk)


@pytest.mark.exhaustive
def test_three_failures_in_a_row_stop_both(
    tmp_path: Path, write_config: Callable[..., Path]
):
    run, fault = tmp_path / "run", "enospc@save:2,enospc@save:3,enospc@save:4"
    words = ["--config", write_config(CONFIG), "--workdir", run]
    words += ["--checkpoint.every-steps", "5"]
    result = run_two(tmp_path, *words, fault=fault)
    assert result.code == 1, result.stderr
    assert "error: could not save step 20" in result.stderr
    assert "failure 3 of 3 in a row. The last good checkpoint is 5" in result.stderr
    assert "[1] error: stopping because process 0 ended" in result.stderr
    assert "Traceback" not in result.stderr
    assert {p.name for p in (run / "checkpoints").iterdir()} == {"5"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The config file and the workdir of a run of two processes."""
    folder = tmp_path_factory.mktemp("finished")
    write_recipe(folder / "recipe.py", CONFIG)
    result = run_two(
        folder, "--config", folder / "recipe.py", "--workdir", folder / "run"
    )
    assert result.code == 0, result.stderr
    return folder


def steps(run: Path) -> set[str]:
    return {p.name for p in (run / "checkpoints").iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "preset", [pytest.param("data_parallel", marks=pytest.mark.exhaustive), "fsdp"]
)
def test_damaged_checkpoint_is_put_aside_once(
    finished: Path, tmp_path: Path, preset: str
):
    run = tmp_path / "run"
    shutil.copytree(finished / "run", run)
    path = run / "checkpoints" / "30" / "state" / "params.conv2.kernel/c/0/0/0/0"
    path.write_bytes(bytes(path.stat().st_size))
    words = ["--config", finished / "recipe.py", "--workdir", run]
    again = run_two(
        tmp_path, *words, "--parallel.preset", preset, "--train.steps", "33"
    )
    assert again.code == 0, again.stderr
    assert again.stderr.count("could not read step 30") == 1
    assert "params.conv2.kernel" in again.stderr
    assert steps(run) == {"20", "30", "33", f"{DAMAGED}-30"}
    assert [line["step"] for line in read_lines(run, "event")] == [20]
    assert read_summary(run)["step"] == 33


# The command line, where step 30 is damaged for process 1 alone.
DAMAGED_FOR_ONE = """
import jax
from jaxtrain.__main__ import run
from jaxtrain.checkpoints import shards
from jaxtrain.errors import DamagedError

def fail(folder, abstract_state):
    if folder.name == "30" and jax.process_index() == 1:
        raise DamagedError("as a test")
    return load(folder, abstract_state)

load, shards.load_shards = shards.load_shards, fail
run()
"""


@pytest.mark.exhaustive
def test_step_that_one_cannot_read_is_put_aside_by_both(finished: Path, cli: Cli):
    """Only process 1 finds it damaged."""
    run = cli.directory / "run"
    shutil.copytree(finished / "run", run)
    words = ["--config", finished / "recipe.py", "--workdir", run]
    words += ["--train.steps", "33"]
    both = [cli.start(*each, program=DAMAGED_FOR_ONE) for each in two(*words)]
    errors = [process.communicate(timeout=PATIENCE)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], errors
    assert "could not read step 30: DamagedError: as a test; moved aside" in errors[0]
    assert steps(run) == {"20", "30", "33", f"{DAMAGED}-30"}
    assert [line["step"] for line in read_lines(run, "event")] == [20]


@pytest.mark.slow
def test_both_go_back_to_a_step(finished: Path, tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(finished / "run", run)
    train = read_lines(run, "train")
    words = ["--config", finished / "recipe.py", "--workdir", run]
    again = run_two(tmp_path, *words, "--resume-step", "10")
    assert again.code == 0, again.stderr
    assert steps(run) == {"10", "20", "30", "rewound-20", "rewound-30"}
    assert read_lines(run, "train") == train
