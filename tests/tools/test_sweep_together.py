"""Sweeps whose trials are trained in one program: each is the run that it would be."""

import contextlib
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxtrain.checkpoints.folder import committed_steps
from jaxtrain.checkpoints.store import Checkpoints
from jaxtrain.config import CheckpointConfig
from jaxtrain.config.recipe import load_config
from jaxtrain.json_files.run_id import RunId
from jaxtrain.tools.sweep.options import SweepOptions
from jaxtrain.tools.sweep.queue import TrialQueue
from jaxtrain.trees import by_path
from tests.helpers.numerics import FP64
from tests.helpers.processes import Cli
from tests.helpers.recipes import EIGHT_STEPS, write_recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import read_lines, read_summary
from tests.helpers.sweeps import read
from tests.helpers.waiting import wait_until

NUMBERS = """
def space(trial):
    return {
        "optimizer.learning_rate": trial.suggest_float("rate", 1e-3, 0.3, log=True),
        "optimizer.weight_decay": trial.suggest_float("decay", 0, 0.1),
    }
"""
SWEEP = "sweep --config recipe.py --space space.py --workdir sweep --precision fp64"
TOGETHER = [*SWEEP.split(), "--trials", 4, "--together", 3]


def write_files(folder: Path, space: str = NUMBERS) -> None:
    folder.mkdir(exist_ok=True)
    write_recipe(folder / "recipe.py", EIGHT_STEPS)
    (folder / "space.py").write_text(space)


def state_of(folder: Path, number: int, step: int) -> dict[str, np.ndarray]:
    workdir = folder / f"sweep/trial-{number:04d}"
    place, run = workdir / "checkpoints", RunId.read(workdir)
    saved = Checkpoints(place, CheckpointConfig(), run=run, read_only=True)
    state = saved.read(step)[0]
    return {path: np.asarray(x) for path, x in by_path(state).items()}


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a sweep of four trials, one after another."""
    folder = tmp_path_factory.mktemp("apart")
    write_files(folder)
    words = [*SWEEP.split(), "--trials", 4, "--pruner", "NopPruner"]
    # Of the last step, as trials that were trained together have it.
    result = Cli(folder)(*words, "--checkpoint.keep-best", 0, **FP64)
    assert result.code == 0, result.stderr
    return folder


def assert_same_sweep(one: Path, other: Path) -> None:
    """Check that trials have the numbers, values and states of others."""
    records = [read(folder)["trials"] for folder in (one, other)]
    for ours, theirs in zip(*records, strict=True):
        assert ours["overrides"] == theirs["overrides"]
        assert (ours["state"], ours["evaluations"]) == ("complete", 4)
        assert ours["value"] == theirs["value"]
        number = ours["number"]
        found, wanted = (state_of(folder, number, 8) for folder in (one, other))
        assert found.keys() == wanted.keys()
        for path, x in wanted.items():
            assert (found[path].shape, found[path].dtype) == (x.shape, x.dtype)
            # The rates are products of float32, which round by 6e-8.
            np.testing.assert_allclose(
                found[path], x, rtol=1e-5, atol=1e-6, err_msg=path
            )


@pytest.mark.slow
def test_trials_together_are_the_runs_that_they_are_apart(apart: Path, cli: Cli):
    write_files(cli.directory)
    result = cli(*TOGETHER, "--checkpoint.keep-best", 0, **FP64)
    assert result.code == 0, result.stderr
    assert "3 members, of the seed 0; learning rate times" in result.stdout
    assert_same_sweep(cli.directory, apart)
    # Three in one program, and the last one by itself.
    folders = {path.name for path in (cli.directory / "sweep").glob("to*")}
    assert folders == {"together-0000"}
    summaries = [read_summary(cli.directory / f"sweep/trial-000{i}") for i in range(4)]
    for number, summary in enumerate(summaries):
        theirs = read_summary(apart / f"sweep/trial-000{number}")
        for name in ("loss", "accuracy"):
            assert summary["eval"][name] == pytest.approx(theirs["eval"][name], 1e-4)
        assert summary["skipped_steps"] == 0
    again = cli(*TOGETHER, "--checkpoint.keep-best", 0, **FP64)
    assert again.code == 0 and "\ntrial" not in again.stdout
    # Each is a run like any other.
    one = cli.directory / "sweep/trial-0001"
    result = cli("evaluate", "--workdir", one, **FP64)
    assert result.code == 0, result.stderr
    result = cli("report", "--workdir", "sweep", "--out", "page.html")
    assert result.code == 0, result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_stopped_on_the_way_they_go_on(apart: Path, cli: Cli, signum: int):
    write_files(cli.directory)
    words = [*TOGETHER, "--checkpoint.keep-best", 0]
    process = cli.start(*words, **FP64)
    folder = cli.directory / "sweep/together-0000/checkpoints"
    wait_until(lambda: committed_steps(folder), process)
    process.send_signal(signum)
    stderr = process.communicate()[1]
    expected = -signum if signum == signal.SIGKILL else 128 + signum
    assert process.returncode == expected, stderr
    result = cli(*words, **FP64)
    assert result.code == 0, result.stderr
    assert_same_sweep(cli.directory, apart)
    events = read_lines(cli.directory / "sweep/together-0000", "event")
    assert any(event["event"] == "resumed" for event in events)


@pytest.mark.slow
def test_processes_have_groups_of_their_own(apart: Path, cli: Cli):
    write_files(cli.directory)
    words = [*SWEEP.split(), "--trials", 4, "--together", 2, "--processes", 2]
    result = cli.process(*words, "--checkpoint.keep-best", 0, **FP64)
    assert result.code == 0, result.stderr
    assert_same_sweep(cli.directory, apart)
    groups = sorted((cli.directory / "sweep").glob("together-*"))
    assert len(groups) == 2
    assert all(read_lines(group, "train") for group in groups)


def test_trials_that_were_left_are_taken_up_together(tmp_path: Path):
    write_files(tmp_path)
    options = SweepOptions(
        config=load_config(tmp_path / "recipe.py"),
        space=tmp_path / "space.py",
        folder=tmp_path,
        num_trials=3,
        pruner="NopPruner",
        together=2,
    )
    with contextlib.closing(TrialQueue(options)) as queue:
        queue.open()
        first = queue.take()
        assert first is not None and first.workdir == tmp_path / "together-0000"
        assert [trial.number for trial in first.left] == [0, 1]
        queue.leave(first)
        # A kill came before the second was drawn, and then while it was.
        with queue.study.storage.engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM trials WHERE number = 1")
        assert queue.take() == first
        queue.forget_start(first)
        queue.leave(first)
        with queue.study.storage.engine.begin() as connection:
            connection.exec_driver_sql(
                "DELETE FROM trial_user_attributes WHERE key = 'overrides'"
            )
        assert queue.take() == first
        queue.end(first.left[0], "complete", 0.5)
        queue.leave(first)
        again = queue.take()
        assert again is not None and again.trials == first.trials
        assert [trial.number for trial in again.left] == [1]
        queue.end(again.left[0], "complete", 0.25)
        queue.leave(again)
        last = queue.take()
        assert last is not None and last.workdir is None
        assert [trial.number for trial in last.trials] == [2]


@pytest.mark.slow
def test_a_trial_whose_values_cannot_be_drawn_is_left_out(cli: Cli):
    broken = "    if trial.number == 1:\n        return 5\n    return {"
    write_files(cli.directory, NUMBERS.replace("    return {", broken))
    plain = [word for word in SWEEP.split() if word not in ("--precision", "fp64")]
    words = [*plain, "--trials", 3, "--together", 2]
    result = cli(*words)
    assert result.code == 2 and "returned int, expected a dict" in result.stderr
    write_files(cli.directory)
    result = cli(*words)
    assert result.code == 0, result.stderr
    found = [trial["state"] for trial in read(cli.directory)["trials"]]
    assert found == ["complete", "failed", "complete"]


@pytest.mark.slow
def test_a_trial_that_diverges_fails_alone(cli: Cli):
    write_files(
        cli.directory,
        "def space(trial):\n"
        "    rate = 1e30 if trial.number == 1 else 0.1\n"
        '    return {"optimizer.learning_rate": rate}\n',
    )
    result = cli(*SWEEP.split(), "--trials", 3, "--together", 3, **FP64)
    assert result.code == 0, result.stderr
    trials = read(cli.directory)["trials"]
    assert [t["state"] for t in trials][::2] == ["complete", "complete"]
    assert trials[0]["value"] == trials[2]["value"]
    values = [trial["value"] or 0.0 for trial in trials]
    assert trials[1]["state"] == "failed" or values[1] <= values[0]


@each_row(
    ("words", "told"),
    [
        (["--pruner", "MedianPruner"], "trials in one program end together"),
        (["--train.ensemble", "2"], "cannot be one"),
        (["--train.early-stop-patience", "2"], "one trial would stop the others"),
        (["--optimizer.schedule", "plateau"], "would reduce the rate of the others"),
        (["--together", "0"], "--together 0: expected 1 to"),
        ([], "the space changes data.batch_size; trials in one program"),
    ],
)
def test_what_cannot_be_together_is_refused(words: list[str], told: str, cli: Any):
    if not (cli.directory / "space.py").exists():
        write_files(
            cli.directory, 'def space(trial):\n    return {"data.batch_size": 8}\n'
        )
    plain = [word for word in SWEEP.split() if word not in ("--precision", "fp64")]
    result = cli(*plain, "--trials", 2, "--together", 2, *words)
    assert result.code == 2
    assert told in " ".join(result.stderr.split())
    assert not list((cli.directory / "sweep").glob("trial*"))
