"""Sweeps: trials that are drawn, trained, pruned, refused, killed and gone on with."""

import contextlib
import json
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from jax.errors import JaxRuntimeError
from optuna.trial import TrialState as OptunaState

from jaxtrain.checkpoints.folder import committed_steps
from jaxtrain.config import (
    AdamConfig,
    AdamWConfig,
    Config,
    CosineSchedule,
    DataConfig,
    SamConfig,
    SGDConfig,
    TrainConfig,
    get,
)
from jaxtrain.config.recipe import load_config, read_run
from jaxtrain.errors import (
    BadNumbersError,
    CheckpointError,
    StartAgainError,
    UserError,
)
from jaxtrain.plugins.report.sweep import rank
from jaxtrain.plugins.report.sweep_file import (
    SweepRecord,
    TrialState,
    read_sweep,
    write_sweep,
)
from jaxtrain.plugins.segmentation.options import SegmentationConfig
from jaxtrain.plugins.sweep import study
from jaxtrain.plugins.sweep.parts import make_pruner, make_sampler
from jaxtrain.plugins.sweep.space import SearchSpace, apply
from jaxtrain.plugins.sweep.study import SweepStudy, create, exists, reported
from jaxtrain.plugins.sweep.trials import Reporter, TrialFailed, carry_out
from jaxtrain.processes.signals import StopSignals
from jaxtrain.tasks.metrics import Goal
from tests.helpers.faulty import faulty
from tests.helpers.processes import Cli
from tests.helpers.recipes import EIGHT_STEPS, write_recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import assert_same_run, read_lines, read_summary
from tests.helpers.tiers import thinned
from tests.helpers.waiting import wait_until

RATES = """
def space(trial):
    rate = trial.suggest_float("rate", 1e-3, 1, log=True)
    return {"optimizer.learning_rate": rate}
"""
# Trials with the same program; the second is refused, for want of examples.
SEEDS = """
def space(trial):
    size = 1000 if trial.number == 1 else 16
    return {"seed": trial.suggest_int("seed", 0, 99), "data.batch_size": size}
"""
# The command line, which takes a trial up again as soon as its process may be lost.
IMPATIENT = """
from jaxtrain.__main__ import run
from jaxtrain.plugins.sweep import study

study.GRACE_SECONDS = 1
if __name__ == "__main__":
    run()
"""
SWEEP = "sweep --config recipe.py --space space.py --workdir sweep"


def write_files(folder: Path, space: str) -> None:
    write_recipe(folder / "recipe.py", EIGHT_STEPS)
    (folder / "space.py").write_text(space)


def read(folder: Path) -> SweepRecord:
    """Return the record of the sweep in `folder / "sweep"`, which is there."""
    record = read_sweep(folder / "sweep")
    assert record is not None
    return record


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


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_same_command_trains_nothing_again(swept: Path):
    before = read(swept), (swept / "sweep/trial-0000/summary.json").stat().st_mtime_ns
    result = Cli(swept)(*SWEEP.split(), "--trials", 2)
    assert result.code == 0, result.stderr
    assert "\ntrial" not in result.stdout
    assert before == (
        read(swept),
        (swept / "sweep/trial-0000/summary.json").stat().st_mtime_ns,
    )


@pytest.mark.slow
def test_another_config_is_refused(swept: Path):
    result = Cli(swept)(*SWEEP.split(), "--trials", 2, "--train.steps", 10)
    assert result.code == 2
    assert "train.steps: 8 -> 10" in result.stderr


@pytest.mark.slow
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
def test_a_pruned_trial_is_a_run_that_can_go_on(cli: Cli):
    write_files(cli.directory, RATES)
    words = "--trials 1 --pruner ThresholdPruner --pruner-options lower 2.0"
    assert cli(*SWEEP.split(), *words.split()).code == 0
    (trial,) = read(cli.directory)["trials"]
    assert (trial["state"], trial["evaluations"]) == ("pruned", 1)
    assert trial["reason"] == "pruned after evaluation 1"
    workdir = cli.directory / "sweep" / "trial-0000"
    assert committed_steps(workdir / "checkpoints") == [2]
    last = read_lines(workdir)[-1]
    assert (last["step"], last["event"]) == (2, "stopped: pruned after evaluation 1")
    assert last["saved"] and not (workdir / "summary.json").exists()
    rate = trial["overrides"]["optimizer.learning_rate"]
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

    monkeypatch.setattr("jaxtrain.plugins.sweep.trials.run_lib.train", train)
    reporter = Reporter(optuna.create_study().ask())
    with pytest.raises(TrialFailed if fails else type(error)) as told:
        carry_out(Config(), {}, tmp_path, reporter, StopSignals())
    assert "of " in str(told.value) and (not fails or "\n" not in str(told.value))


def checkpoint_of(folder: Path, number: int) -> Callable[[], object]:
    checkpoints = folder / "sweep" / f"trial-{number:04d}" / "checkpoints"
    return lambda: committed_steps(checkpoints)


LONG = ("--train.steps", 40, "--checkpoint.every-steps", 4)


@pytest.mark.parametrize("signum", thinned(2, [signal.SIGTERM, signal.SIGKILL]))
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
    result = cli.process(*words, program=IMPATIENT)
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


@pytest.mark.exhaustive
def test_the_same_command_may_be_started_several_times(cli: Cli):
    write_files(cli.directory, RATES)
    words = [*SWEEP.split(), "--trials", 4, "--pruner", "NopPruner", *LONG]
    processes = [cli.start(*words) for _ in range(2)]
    outputs = list[str]()
    for process in processes:
        stdout, stderr = process.communicate()
        assert process.returncode == 0, stderr
        outputs.append(stdout)
    assert states(cli.directory) == ["complete"] * 4
    rates = {
        t["overrides"]["optimizer.learning_rate"] for t in read(cli.directory)["trials"]
    }
    assert len(rates) == 4
    for number in range(4):
        told = f"\ntrial {number} is complete"
        assert sum(told in f"\n{output}" for output in outputs) == 1


@pytest.mark.slow
def test_a_combination_is_drawn_once(cli: Cli):
    write_files(
        cli.directory,
        "def space(trial):\n"
        "    return {'seed': trial.suggest_categorical('seed', [1, 2])}\n",
    )
    words = [*SWEEP.split(), "--trials", 9, "--sampler", "BruteForceSampler"]
    result = cli(*words)
    assert result.code == 0, result.stderr
    seeds = [trial["overrides"]["seed"] for trial in read(cli.directory)["trials"]]
    assert sorted(seeds) == [1, 2]


@pytest.fixture
def trials(tmp_path: Path) -> SweepStudy:
    create(tmp_path, Config(), Goal("loss", False))
    return SweepStudy(tmp_path)


def add(trials: SweepStudy, state: OptunaState, *values: float) -> None:
    """Add a trial with an evaluation for each value."""
    trial = optuna.create_trial(
        state=state,
        params={"rate": 0.25},
        distributions={"rate": optuna.distributions.FloatDistribution(0, 1)},
        user_attrs={"overrides": {"seed": 3}},
        intermediate_values=dict(enumerate(values, start=1)),
        value=values[-1] if state == OptunaState.COMPLETE else None,
    )
    trials.optuna.add_trial(trial)


def test_a_killed_trial_goes_on_until_it_was_killed_too_often(
    trials: SweepStudy, tmp_path: Path
):
    add(trials, OptunaState.FAIL, 0.5, 0.25)
    add(trials, OptunaState.COMPLETE, 0.75)
    assert not trials.left(2) and trials.left(3)
    attempt, checkpoints = 0, tmp_path / "trial-0000" / "checkpoints"

    def retry(**options: bool) -> None:
        nonlocal attempt
        trials.retry(attempt, **options)
        copy = trials.optuna.get_trials()[-1]
        assert copy.number != attempt and copy.state == OptunaState.WAITING
        assert copy.params == {"rate": 0.25} and trials.number_of(copy.number) == 0
        assert copy.intermediate_values == {1: 0.5, 2: 0.25}
        assert trials.left(2)
        assert trials.write()["trials"][0]["state"] == "running"
        trials.optuna.tell(_running(trials, copy.number), state=OptunaState.FAIL)
        attempt = copy.number

    retry()
    retry()
    # An end in order does not count, and after a checkpoint kills count anew.
    retry(killed=False)
    retry()
    retry()
    (checkpoints / "4").mkdir(parents=True)
    (checkpoints / "4" / "commit_success.txt").touch()
    retry()
    retry()
    num = len(trials.optuna.trials)
    trials.retry(attempt)
    assert len(trials.optuna.trials) == num and not trials.left(2)
    record = trials.write()
    assert [t["number"] for t in record["trials"]] == [0, 1] and record["best"] == 1
    reason = record["trials"][0]["reason"]
    assert reason == "its process was killed 3 times without a new checkpoint"
    # Other programs read the study.
    storage = optuna.storages.RDBStorage(f"sqlite:///{tmp_path}/study.db")
    assert optuna.load_study(study_name="sweep", storage=storage).best_value == 0.75
    storage.remove_session()
    storage.engine.dispose()


def _running(trials: SweepStudy, attempt: int) -> int:
    """Begin a trial that waits, as a process does that takes it."""
    storage = trials.optuna._storage
    study_id = storage.get_study_id_from_name("sweep")
    trial = storage.get_trial_id_from_study_id_trial_number(study_id, attempt)
    assert storage.set_trial_state_values(trial, OptunaState.RUNNING)
    assert not storage.set_trial_state_values(trial, OptunaState.RUNNING)
    return attempt


@each_row(
    ("overrides", "changed"),
    [
        ({"optimizer.learning_rate": 1}, {"optimizer.learning_rate": 1}),
        ({"train.epochs": 2}, {"train.epochs": 2, "train.steps": None}),
        ({"train.steps": 9}, {"train.epochs": None, "train.steps": 9}),
        ({"data.mean": [0.5]}, {"data.mean": (0.5,)}),
        (
            # Another optimizer has the learning rate of the config.
            {"optimizer.name": "adamw", "optimizer.b1": 0.8},
            {"optimizer": AdamWConfig(learning_rate=0.3, b1=0.8)},
        ),
        (
            {"optimizer": "adam", "optimizer.schedule": "cosine"},
            {"optimizer": AdamConfig(learning_rate=0.3, schedule=CosineSchedule())},
        ),
        ({"task.loss": "focal"}, {"task.loss": "focal"}),
        ({"method.name": "sam"}, {"method": SamConfig()}),
    ],
)
def test_overrides_replace_fields(overrides: dict[str, Any], changed: dict[str, Any]):
    config = Config(
        optimizer=SGDConfig(learning_rate=0.3),
        train=TrainConfig(steps=8),
        data=DataConfig(std=(1.0,), mean=(0.0,)),
    )
    if "task.loss" in overrides:
        config = Config(task=SegmentationConfig(), train=TrainConfig(steps=8))
    found = apply(config, overrides)
    assert {path: get(found, path) for path in changed} == changed


def test_parts_of_overrides_are_checked_together():
    config = Config(
        optimizer=SGDConfig(schedule=CosineSchedule()), train=TrainConfig(steps=8)
    )
    found = apply(
        config,
        {
            "optimizer.name": "schedule_free_adamw",
            "optimizer.schedule.name": "constant",
        },
    )
    assert found.optimizer.name == "schedule_free_adamw"
    assert found.optimizer.schedule.name == "constant"


@each_row(
    ("returned", "told"),
    [
        ("3", "space() returned int: return a dict"),
        ('{"optimizer.lr": 1}', "'optimizer.lr' is not a field of the config"),
        ('{"task.name": "regression"}', "task.name cannot be searched"),
        ('{"seed": float("nan")}', "space() returned a value that JSON does not"),
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


@each_row(
    ("words", "told"),
    [
        ("--sampler TPE", "--sampler TPE: expected BruteForceSampler"),
        ("--pruner-options steps 3", "MedianPruner takes n_startup_trials"),
        ("--pruner-options n_startup_trials -1", "cannot be negative"),
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


def test_a_study_is_kept_in_a_folder_of_any_name(tmp_path: Path):
    folder = tmp_path / "a{b}?#%20"
    folder.mkdir()
    assert not exists(folder)
    create(folder, Config(), Goal("loss", False))
    # Another process was first.
    create(folder, Config(), Goal("accuracy", True))
    assert exists(folder) and [p.name for p in folder.iterdir()] == ["study.db"]
    trials = SweepStudy(folder)
    add(trials, OptunaState.COMPLETE, 0.5)
    add(trials, OptunaState.COMPLETE, 0.25)
    add(trials, OptunaState.PRUNED, float("nan"))
    record = trials.write()
    assert record == read_sweep(folder)
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
            SweepStudy(folder).write()
        assert "SELECT" not in str(told.value)


@each_row(
    ("state", "named"),
    [
        ("empty", "the file is empty, 0 bytes): "),
        ("gone", "the file is missing, but sweep.json exists): "),
        ("locked", "database is locked): stop other programs that lock the file"),
        ("read-only", "readonly database): "),
    ],
)
def test_a_study_that_cannot_go_on_is_refused(
    state: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    create(tmp_path, Config(), Goal("loss", False))
    write_sweep(tmp_path, SweepStudy(tmp_path).write())
    file, connect = tmp_path / "study.db", sqlite3.connect
    monkeypatch.setattr(study, "WAIT_SECONDS", 0.01)
    if state == "empty":
        file.write_bytes(b"")
        monkeypatch.setattr("time.sleep", lambda seconds: None)
    if state == "gone":
        file.unlink()
    if state == "read-only":  # Also for root.
        only = f"{file.as_uri()}?mode=ro"
        made = lambda path, **options: connect(only, uri=True, **options)  # noqa: E731
        monkeypatch.setattr(sqlite3, "connect", made)
    with contextlib.closing(connect(file) if state == "locked" else connect("")) as c:
        c.execute("BEGIN EXCLUSIVE")
        with pytest.raises(UserError) as told, reported(tmp_path):
            exists(tmp_path)
            SweepStudy(tmp_path).optuna.set_user_attr("written", True)
    assert f"{file} cannot be read or written (" in str(told.value)
    assert named in str(told.value)


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
