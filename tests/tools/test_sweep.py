"""Sweeps: trials that are drawn, trained, pruned, refused, killed and gone on with."""

import contextlib
import json
import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
from jax.errors import JaxRuntimeError

from jaxtrain import own
from jaxtrain.checkpoints.folder import committed_steps
from jaxtrain.config import Config, DataConfig, TrainConfig, get
from jaxtrain.config.recipe import load_config, read_run
from jaxtrain.errors import (
    BadNumbersError,
    CheckpointError,
    StartAgainError,
    UntrustedError,
    UserError,
)
from jaxtrain.plugins.report.sweep import rank
from jaxtrain.processes.signals import StopSignals
from jaxtrain.records.sweep_file import TrialState, read_sweep, write_sweep
from jaxtrain.tasks.metrics import Goal
from jaxtrain.tools.sweep import study
from jaxtrain.tools.sweep.options import SweepOptions
from jaxtrain.tools.sweep.parts import make_pruner, make_sampler
from jaxtrain.tools.sweep.processes import share_gpus
from jaxtrain.tools.sweep.queue import TakenTrial, TrialQueue
from jaxtrain.tools.sweep.space import SearchSpace, apply
from jaxtrain.tools.sweep.study import SweepStudy, reported
from jaxtrain.tools.sweep.trials import carry_out
from tests.helpers.faulty import faulty
from tests.helpers.processes import Cli
from tests.helpers.recipes import EIGHT_STEPS, write_recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import assert_same_run, read_lines, read_summary
from tests.helpers.sweeps import read
from tests.helpers.waiting import wait_until

RATES = """
def space(trial):
    rate = trial.suggest_float("rate", 1e-3, 1, log=True)
    return {"optimizer.learning_rate": rate}
"""
WAITING_RATES = """
import time
from pathlib import Path

def space(trial):
    while trial.number >= 2 and not Path("go").exists():
        time.sleep(0.05)
    rate = trial.suggest_float("rate", 1e-3, 1, log=True)
    return {"optimizer.learning_rate": rate}
"""
# Trials with the same program; the second is refused, for want of examples.
SEEDS = """
def space(trial):
    size = 1000 if trial.number == 1 else 16
    return {"seed": trial.suggest_int("seed", 0, 99), "data.batch_size": size}
"""
SWEEP = "sweep --config recipe.py --space space.py --workdir sweep"


def write_files(folder: Path, space: str) -> None:
    write_recipe(folder / "recipe.py", EIGHT_STEPS)
    (folder / "space.py").write_text(space)


def states(folder: Path) -> list[TrialState]:
    return [trial["state"] for trial in read(folder)["trials"]]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a sweep of two trials, one of which was refused."""
    folder = tmp_path_factory.mktemp("swept")
    write_files(folder, SEEDS)
    result = Cli(folder)(*SWEEP.split(), "--trials", 2)
    assert result.code == 0, result.stderr
    assert "trial 1 failed: data.batch_size = 1000" in result.stdout
    assert "1 complete, 1 failed" in result.stdout
    return folder


def test_trials_are_runs_and_the_best_is_a_recipe(swept: Path):
    record = read(swept)
    assert (record["metric"], record["better"]) == ("accuracy", "higher")
    assert states(swept) == ["complete", "failed"]
    values = dict[int, float]()
    for trial in record["trials"]:
        workdir = swept / "sweep" / f"trial-{trial['number']:04d}"
        if trial["state"] == "failed":
            assert not workdir.exists()
            continue
        summary = read_summary(workdir)
        value = summary["model"]["validation"]["accuracy"]
        assert value == trial["value"]
        evaluations = [e for e in read_lines(workdir, "eval") if e["split"] != "test"]
        assert trial["evaluations"] == len(evaluations) == 4
        values[trial["number"]] = value
        for path, value in trial["overrides"].items():
            assert get(read_run(workdir), path) == value
    best = record["best"]
    assert best is not None and values[best] == max(values.values())
    recipe = load_config(swept / "sweep" / "best.py")
    overrides = record["trials"][best]["overrides"]
    assert recipe == apply(load_config(swept / "recipe.py"), overrides)


def test_the_same_command_trains_nothing_again(swept: Path):
    before = read(swept), (swept / "sweep/trial-0000/summary.json").stat().st_mtime_ns
    result = Cli(swept)(*SWEEP.split(), "--trials", 2)
    assert result.code == 0, result.stderr
    assert "\ntrial" not in result.stdout
    assert before == (
        read(swept),
        (swept / "sweep/trial-0000/summary.json").stat().st_mtime_ns,
    )


def test_another_config_is_refused(swept: Path):
    result = Cli(swept)(*SWEEP.split(), "--trials", 2, "--train.steps", 10)
    assert result.code == 2
    assert "train.steps: 8 -> 10" in result.stderr


def test_the_report_compares_the_trials(swept: Path):
    result = Cli(swept)("report", "--workdir", "sweep", "--out", "page.html")
    assert result.code == 0, result.stderr
    page = (swept / "page.html").read_text()
    assert page == (swept / "sweep" / "comparison.html").read_text()
    assert "failed: data.batch_size = 1000" in page
    assert "<h1>Sweep of 2 trials</h1>" in page
    result = Cli(swept)("report", "--workdir", "sweep", "--compare", "sweep/trial-0000")
    assert result.code == 2 and "leave --compare out" in result.stderr


@pytest.mark.slow
def test_a_pruned_run_is_saved_and_ends_in_order(cli: Cli):
    write_files(cli.directory, SEEDS)
    words = "--trials 1 --pruner ThresholdPruner --pruner-options lower 2.0"
    result = cli(*SWEEP.split(), *words.split())
    assert result.code == 0, result.stderr
    trial = read(cli.directory)["trials"][0]
    assert (trial["state"], trial["evaluations"]) == ("pruned", 1)
    assert trial["reason"] == "pruned after evaluation 1"
    workdir = cli.directory / "sweep" / "trial-0000"
    assert committed_steps(workdir / "checkpoints") == [2]
    last = read_lines(workdir)[-1]
    assert (last["step"], last["event"]) == (2, "stopped: pruned after evaluation 1")
    assert last["saved"] and not (workdir / "summary.json").exists()


@pytest.mark.slow
def test_a_pruned_trial_is_a_run_that_can_go_on(cli: Cli):
    write_files(cli.directory, RATES)
    words = "--trials 1 --pruner ThresholdPruner --pruner-options lower 2.0"
    assert cli(*SWEEP.split(), *words.split()).code == 0
    rate = read(cli.directory)["trials"][0]["overrides"]["optimizer.learning_rate"]
    words = f"--config recipe.py --optimizer.learning-rate {rate!r} --workdir"
    for workdir in ("sweep/trial-0000", "alone"):
        result = cli(*words.split(), workdir)
        assert result.code == 0, result.stderr
    one, other = cli.directory / "sweep/trial-0000", cli.directory / "alone"
    assert_same_run(one, other, 8)


@pytest.mark.slow
def test_all_failing_ends_with_2(cli: Cli):
    write_files(
        cli.directory, 'def space(trial):\n    return {"data.batch_size": 1000}'
    )
    result = cli(*SWEEP.split(), "--trials", 2)
    assert result.code == 2
    assert "all 2 trials failed; trial 0: data.batch_size = 1000" in result.stderr
    # A longer sweep goes on.
    (cli.directory / "space.py").write_text(RATES)
    result = cli(*SWEEP.split(), "--trials", 3)
    assert result.code == 0, result.stderr
    assert states(cli.directory) == ["failed", "failed", "complete"]


@pytest.mark.slow
def test_bad_numbers_fail_one_trial(cli: Cli):
    write_files(
        cli.directory, 'def space(trial):\n    return {"train.max_bad_steps": 1}'
    )
    with faulty("nan@step:3"):
        result = cli(*SWEEP.split(), "--trials", 1)
    assert result.code == 2, result.stdout
    reason = read(cli.directory)["trials"][0]["reason"]
    assert reason is not None and "step 3" in reason
    result = cli(*SWEEP.split(), "--trials", 2)
    assert result.code == 0, result.stderr
    assert states(cli.directory) == ["failed", "complete"]


@each_row(
    ("error", "fails"),
    [
        (UserError("of the config"), True),
        (BadNumbersError("of the loss"), True),
        (MemoryError("of the host"), True),
        (JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory\nof a GPU"), True),
        (JaxRuntimeError("INTERNAL: of CUDA"), False),
        (CheckpointError("of the disk"), False),
        (StartAgainError("of a worker"), False),
        (RuntimeError("of ours"), False),
    ],
)
def test_faults_of_a_trial_fail_it_and_others_do_not(
    error: Exception, fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def train(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr("jaxtrain.tools.sweep.trials.run.train", train)
    trial = TakenTrial(number=0, overrides={}, workdir=tmp_path)
    study = SimpleNamespace(trial=lambda number: SimpleNamespace(last_step=None))
    queue: Any = SimpleNamespace(study=study)
    if fails:
        state, _, reason = carry_out(queue, trial, Config(), StopSignals())
        assert state == "failed" and reason is not None and " of" in f" {reason}"
        assert "\n" not in reason
    else:
        with pytest.raises(type(error)):
            carry_out(queue, trial, Config(), StopSignals())


def checkpoint_of(folder: Path, number: int) -> Callable[[], object]:
    checkpoints = folder / "sweep" / f"trial-{number:04d}" / "checkpoints"
    return lambda: committed_steps(checkpoints)


LONG = ("--train.steps", 40, "--checkpoint.every-steps", 4)


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_a_stopped_sweep_goes_on_as_if_it_was_not(
    cli: Cli, signum: int, tmp_path: Path
):
    write_files(cli.directory, RATES)
    words = [*SWEEP.split(), "--trials", 2, "--pruner", "NopPruner", *LONG]
    process = cli.start(*words)
    wait_until(checkpoint_of(cli.directory, 1), process)
    process.send_signal(signum)
    stderr = process.communicate()[1]
    expected = -signum if signum == signal.SIGKILL else 128 + signum
    assert process.returncode == expected, stderr
    assert states(cli.directory) == ["complete", "running"]
    saved = max(committed_steps(cli.directory / "sweep/trial-0001/checkpoints"))
    result = cli.process(*words)
    assert result.code == 0, result.stderr
    assert "\ntrial 0:" not in result.stdout
    events = read_lines(cli.directory / "sweep/trial-0001", "event")
    resumed = [e["step"] for e in events if e["event"] == "resumed"]
    assert len(resumed) == 1 and resumed[0] >= saved
    # Left alone, it draws and trains the same.
    alone = tmp_path / "alone"
    alone.mkdir()
    write_files(alone, RATES)
    result = Cli(alone)(*words)
    assert result.code == 0, result.stderr
    assert read(alone) == read(cli.directory)
    for number in range(2):
        name = f"sweep/trial-{number:04d}"
        assert_same_run(alone / name, cli.directory / name, 40)


@pytest.mark.slow
def test_two_processes_share_a_sweep_and_one_is_killed(cli: Cli):
    # Trials are left for both processes until one is killed.
    write_files(cli.directory, WAITING_RATES)
    words = [*SWEEP.split(), "--trials", 4, "--processes", 2, *LONG]
    process = cli.start(*words, anew=True)
    wait_until(checkpoint_of(cli.directory, 0), process)
    wait_until(checkpoint_of(cli.directory, 1), process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    workers = [
        int(child)
        for child in children.split()
        if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]
    assert len(workers) == 2
    os.kill(workers[0], signal.SIGKILL)
    (cli.directory / "go").touch()
    stdout, stderr = process.communicate()
    assert process.returncode == 0, (stdout, stderr)
    assert "was killed by SIGKILL" in stderr
    assert set(states(cli.directory)) <= {"complete", "pruned"}
    assert len(states(cli.directory)) == 4
    rates = [
        t["overrides"]["optimizer.learning_rate"] for t in read(cli.directory)["trials"]
    ]
    assert len(set(rates)) == 4
    for number in range(4):
        assert f"\ntrial {number} " in "\n" + stdout
        events = read_lines(cli.directory / f"sweep/trial-{number:04d}", "event")
        assert sum(e["event"] == "resumed" for e in events) <= 1


@pytest.mark.exhaustive
def test_several_processes_stop_together_and_go_on(cli: Cli):
    write_files(cli.directory, RATES)
    # So long that the first trial goes on while the second process starts.
    words = [*SWEEP.split(), "--trials", 2, "--processes", 2, *LONG]
    words += ["--train.steps", 400]
    process = cli.start(*words, anew=True)
    wait_until(checkpoint_of(cli.directory, 0), process)
    wait_until(checkpoint_of(cli.directory, 1), process)
    process.terminate()
    stdout, stderr = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM, (stdout, stderr)
    assert states(cli.directory) == ["running", "running"]
    stopped = [
        read_lines(cli.directory / f"sweep/trial-{number:04d}", "event")[-1]
        for number in range(2)
    ]
    assert all(e["event"] == "stopped by SIGTERM" and e["saved"] for e in stopped)
    result = cli.process(*words, "--processes", 1)
    assert result.code == 0, result.stderr
    assert states(cli.directory) == ["complete", "complete"]


@pytest.mark.slow
def test_a_trial_that_kills_its_process_fails_in_the_end(cli: Cli):
    write_files(cli.directory, RATES)
    words = [*SWEEP.split(), "--trials", 2]
    for _ in range(3):
        result = cli.process(*words, fault="kill@step:2")
        assert result.code == -signal.SIGKILL
    result = cli.process(*words)
    assert result.code == 0, result.stderr
    assert states(cli.directory) == ["failed", "complete"]
    reason = read(cli.directory)["trials"][0]["reason"]
    assert reason == "its process was killed 3 times after step 0"


@pytest.mark.slow
def test_a_kill_after_the_last_evaluation_repeats_nothing(cli: Cli):
    """The run has ended, and the study does not know."""
    write_files(cli.directory, RATES)
    words = [*SWEEP.split(), "--trials", 1]
    assert cli(*words).code == 0
    before = read(cli.directory)
    study = SweepStudy(cli.directory / "sweep")
    with study.storage.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE trials SET state = 'RUNNING'")
        connection.exec_driver_sql("DELETE FROM trial_values")
    summary = (cli.directory / "sweep/trial-0000/summary.json").stat().st_mtime_ns
    result = cli(*words)
    assert result.code == 0, result.stderr
    assert read(cli.directory) == before
    assert (
        summary == (cli.directory / "sweep/trial-0000/summary.json").stat().st_mtime_ns
    )


def test_a_trial_that_was_left_is_taken_up_until_it_has_failed(tmp_path: Path):
    write_files(tmp_path, RATES)
    options = SweepOptions(
        config=load_config(tmp_path / "recipe.py"),
        space=tmp_path / "space.py",
        folder=tmp_path,
        num_trials=2,
    )
    with contextlib.closing(TrialQueue(options)) as queue:
        queue.open()
        first = queue.take()
        assert first is not None and first.number == 0
        queue.leave(first)
        # A kill came while the values were drawn.
        with queue.study.storage.engine.begin() as connection:
            connection.exec_driver_sql(
                "DELETE FROM trial_user_attributes WHERE key = 'overrides'"
            )
        assert queue.take() == first
        queue.leave(first)
        assert queue.take() == first
        # One that ended in order does not count.
        queue.forget_start(first)
        for _ in range(3):
            queue.leave(first)
            assert queue.take() == first
        queue.leave(first)
        second = queue.take()
        assert second is not None and second.number == 1
        assert second.trials[0].overrides != first.trials[0].overrides
        reason = queue.study.record()["trials"][0]["reason"]
        assert reason == "its process was killed 3 times after step 0"
        queue.end(second.trials[0], "complete", 0.5)
        queue.leave(second)
        assert queue.take() is None
    record = read_sweep(tmp_path)
    assert record is not None and record["best"] == 1
    # Other programs read the study.
    storage = optuna.storages.RDBStorage(f"sqlite:///{tmp_path}/study.db")
    assert optuna.load_study(study_name="sweep", storage=storage).best_value == 0.5
    storage.remove_session()
    storage.engine.dispose()


@each_row(
    ("overrides", "changed"),
    [
        ({"optimizer.learning_rate": 1}, {"optimizer.learning_rate": 1}),
        ({"train.epochs": 2}, {"train.epochs": 2, "train.steps": None}),
        ({"train.steps": 9}, {"train.epochs": None, "train.steps": 9}),
        ({"data.mean": [0.5]}, {"data.mean": (0.5,)}),
        (
            # Each alone would be refused.
            {"optimizer.name": "sgd", "optimizer.momentum": 0.9},
            {"optimizer.name": "sgd", "optimizer.momentum": 0.9},
        ),
        ({"task_options.loss": "focal"}, {"task_options": {"loss": "focal"}}),
    ],
)
def test_overrides_replace_fields(overrides: dict[str, Any], changed: dict[str, Any]):
    config = Config(
        train=TrainConfig(steps=8), data=DataConfig(std=(1.0,), mean=(0.0,))
    )
    if "task_options.loss" in overrides:
        config = Config(task="segmentation", train=TrainConfig(steps=8))
    found = apply(config, overrides)
    assert {path: get(found, path) for path in changed} == changed


@each_row(
    ("returned", "told"),
    [
        ("3", "space() returned int, expected a dict"),
        ('{"optimizer.lr": 1}', "'optimizer.lr' is no field of the config"),
        ('{"task": "regression"}', "task cannot be searched"),
        ('{"seed": {1}}', "space() returned a value that JSON does not have"),
        ('{"seed": float("nan")}', "space() returned a value that JSON does not have"),
        ("1 / 0", "space.py:2: ZeroDivisionError"),
        ("trial.suggest_float('a', 2, 1)", "space.py:2: ValueError"),
    ],
)
def test_a_wrong_space_is_refused(returned: str, told: str, tmp_path: Path):
    path = tmp_path / "space.py"
    path.write_text(f"def space(trial):\n    return {returned}\n")
    trial = optuna.create_study().ask()
    with pytest.raises(UserError) as error:
        SearchSpace(path, Config()).draw(trial)
    assert told in str(error.value)


def test_own_parts_are_those_that_the_space_names(tmp_path: Path):
    (tmp_path / "my_net.py").write_text("Net = 1\n")
    path, name = tmp_path / "space.py", f"{tmp_path}/my_net.py:Net"
    path.write_text(
        "def space(trial):\n"
        f"    return {{'model.name': trial.suggest_categorical('net', ['{name}'])}}\n"
    )
    with own.allowing_nothing():
        space = SearchSpace(path, Config())
        # What a study names.
        changed = apply(Config(), {"model.name": name})
        space.draw_again({"net": "another"}, 0)
        with pytest.raises(UntrustedError):
            own.check_allowed("model.name", changed.model.name)
        space.draw_again({"net": name}, 0)
        own.check_allowed("model.name", changed.model.name)


@each_row(
    ("words", "told"),
    [
        ("--trials 0", "--trials 0: expected 1"),
        ("--processes 0", "--processes 0: expected 1"),
        ("--sampler TPE", "--sampler TPE: expected BruteForceSampler"),
        ("--pruner Median", "--pruner Median: expected HyperbandPruner"),
        ("--pruner-options steps 3", "MedianPruner takes n_startup_trials"),
        ("--pruner-options n_startup_trials -1", "does not take them"),
        ("--train.stop-after-steps 2", "train.stop_after_steps = 2"),
        ("--space other.py", "--space other.py: no such file"),
        ("--data.validation-fraction 0", "set data.validation_fraction"),
    ],
)
def test_wrong_words_are_refused(words: str, told: str, tmp_path: Path):
    write_files(tmp_path, RATES)
    text = EIGHT_STEPS.replace("eval_every_steps=2", "")
    write_recipe(tmp_path / "recipe.py", text)
    result = Cli(tmp_path)(*SWEEP.split(), *words.split())
    assert result.code == 2 and told in result.stderr, result.stderr


def test_samplers_draw_by_the_number_of_the_trial():
    def draw(number: int, name: str = "RandomSampler", **options: Any) -> float:
        study = optuna.create_study(sampler=make_sampler(name, options, 7, number))
        return study.ask().suggest_float("x", 0, 1)

    assert draw(0) == draw(0) and len({draw(number) for number in range(20)}) == 20
    assert draw(0, seed=1) != draw(0) and draw(1, seed=1) != draw(0, seed=1)
    tpe = {"multivariate": True}
    assert draw(3, "TPESampler", **tpe) == draw(3, "TPESampler", **tpe)


def test_pruners_may_wrap_others():
    options = {"wrapped_pruner": "MedianPruner", "patience": 2}
    assert isinstance(
        make_pruner("PatientPruner", options), optuna.pruners.PatientPruner
    )


def test_gpus_are_shared_evenly():
    assert share_gpus(["0", "1", "2", "3"], 2) == [["0", "1"], ["2", "3"]]
    assert share_gpus([], 2) == [[], []]
    with pytest.raises(UserError, match="3 GPUs cannot be shared evenly"):
        share_gpus(["0", "1", "2"], 2)


def test_a_study_is_kept_in_a_folder_of_any_name(tmp_path: Path):
    folder = tmp_path / "a{b}?#%20"
    folder.mkdir()
    study = SweepStudy(folder)
    assert not study.exists()
    study.create(Config(), Goal("loss", False))
    for value in (0.5, 0.25, float("nan")):
        number = study.load().ask().number
        study.report(number, 1, value)
        # After a kill an evaluation comes again.
        study.report(number, 1, value)
        state = "complete" if value == value else "pruned"
        study.end(number, state, value if state == "complete" else None, "why")
    record = SweepStudy(folder).record()
    assert record["best"] == 1 and record["better"] == "lower"
    assert [t["value"] for t in record["trials"]] == [0.5, 0.25, None]
    assert [t["number"] for t in rank(record)] == [1, 0, 2]
    json.dumps(record, allow_nan=False)
    file = folder / "study.db"
    content = file.read_bytes()
    for damaged in (
        b"damaged" * 1000,
        content[: len(content) // 4],
        # The header is whole, and nothing else.
        content[:4096] + b"damaged" * (len(content) // 7),
    ):
        file.write_bytes(damaged)
        with (
            pytest.raises(UserError, match=r"study\.db cannot be read") as told,
            reported(folder),
        ):
            SweepStudy(folder).record()
        assert "SELECT" not in str(told.value)


@each_row(
    ("state", "named"),
    [
        ("empty", "it is empty, 0 bytes): the values of its trials are lost"),
        ("gone", "it is gone, and its sweep is not): the values of its trials"),
        ("locked", "database is locked): another program holds it"),
        ("read-only", "readonly database): change its permissions"),
    ],
)
def test_a_study_that_cannot_go_on_is_refused(
    state: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    SweepStudy(tmp_path).create(Config(), Goal("loss", False))
    assert [path.name for path in tmp_path.iterdir()] == ["study.db"]
    write_sweep(tmp_path, SweepStudy(tmp_path).record())
    file, connect = tmp_path / "study.db", sqlite3.connect
    monkeypatch.setattr(study, "WAIT_SECONDS", 0.01)
    if state == "empty":
        file.write_bytes(b"")
    if state == "gone":
        file.unlink()
    if state == "read-only":  # Also for root.
        only = f"{file.as_uri()}?mode=ro"
        made = lambda path, timeout: connect(only, timeout, uri=True)  # noqa: E731
        monkeypatch.setattr(sqlite3, "connect", made)
    with contextlib.closing(connect(file) if state == "locked" else connect("")) as c:
        c.execute("BEGIN EXCLUSIVE")
        with pytest.raises(UserError) as told, reported(tmp_path):
            SweepStudy(tmp_path).create(Config(), Goal("loss", False))
    assert f"{file} cannot be read and written (" in str(told.value)
    assert named in str(told.value) and "free some space" not in str(told.value)


@each_row(
    ("line", "error"),
    [
        ("raise SystemExit(0)", UserError),
        ("raise KeyboardInterrupt", KeyboardInterrupt),
    ],
)
def test_a_space_that_exits(line: str, error: type[BaseException], tmp_path: Path):
    path = tmp_path / "space.py"
    path.write_text(f"def space(trial):\n    {line}\n")
    with pytest.raises(error, match=r"SystemExit: 0|^$"):
        SearchSpace(path, Config()).draw(None)
