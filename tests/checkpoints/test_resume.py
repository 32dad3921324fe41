"""Stopped and started again through the real command line, a run ends the same."""

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from jaxtrain.cli import main
from jaxtrain.config import to_json
from jaxtrain.config.recipe import load_config
from jaxtrain.json_files.run_id import RunId
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import assert_same_run, read_lines, read_summary
from tests.helpers.waiting import PATIENCE, wait_for_lines
from tests.helpers.words import quoted

# Batch norm, dropout, crops, flips, an average of the weights, early stopping and a
# length that is a multiple of no period.
CHANGES = {
    "data": 'DataConfig(source="digits", batch_size=64, '
    "augment=AugmentConfig(crop_padding=1, horizontal_flip=True))",
    "train": "TrainConfig(steps=47, ema_decay=0.9, eval_every_steps=7, "
    "early_stop_patience=100)",
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The config file and the finished workdir of a run that nothing stopped."""
    folder = tmp_path_factory.mktemp("undisturbed")
    config = write_recipe(folder / "recipe.py", recipe(**CHANGES))
    Cli(folder).done("--config", config, "--workdir", folder / "run")
    return folder


@pytest.mark.slow
def test_stopped_run_ends_like_an_undisturbed_one(undisturbed: Path, cli: Cli):
    """At a checkpoint and between two, in the middle of an epoch and of an interval.

    With a progress bar it shows the evaluations of before.
    """
    config = undisturbed / "recipe.py"
    words = ["--config", config, "--workdir", cli.directory / "run"]
    for stop in (10, 23):
        cli.done(*words, "--train.stop-after-steps", stop)
    assert not (cli.directory / "run" / "summary.json").exists()
    rest = cli.done(*words, FORCE_COLOR="1")  # As on a terminal.
    assert "3 evaluation" in rest.stdout.partition("resumed")[0]
    assert_same_run(undisturbed / "run", cli.directory / "run", 47)


@pytest.mark.slow
def test_several_steps_a_call_end_the_same_wherever_they_stop(cli: Cli, write_config):
    """The limit of 11 lies within the call from 10 to 14: the run stops at its end."""
    config = write_config(
        recipe(train="TrainConfig(steps=22, steps_per_call=4, eval_every_steps=100)")
    )
    whole, parts = cli.directory / "whole", cli.directory / "parts"
    cli.done("--config", config, "--workdir", whole)
    words = ["--config", config, "--workdir", parts]
    cli.done(*words, "--train.stop-after-steps", 11)
    assert (parts / "checkpoints" / "14").is_dir()
    cli.done(*words)
    assert_same_run(whole, parts, 22)


@pytest.mark.slow
def test_signal_saves_and_the_same_command_goes_on(undisturbed: Path, cli: Cli):
    config, run = undisturbed / "recipe.py", cli.directory / "run"
    words = ["--config", config, "--workdir", run, "--logging.every-steps", "1"]
    # Slowed down, so that the signal comes in the middle.
    process = cli.start(*words, "--train.steps", "100000")
    wait_for_lines(run / "metrics.jsonl", 5, process)
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 143, stderr
    assert "is saved; the same command resumes" in stderr
    saved = max(int(p.name) for p in (run / "checkpoints").iterdir())
    assert saved == read_lines(run, "train")[-1]["step"] >= 5
    cli.done(*words, "--train.steps", saved + 3)
    assert read_summary(run)["step"] == saved + 3


@pytest.mark.slow
def test_finished_run_says_so(undisturbed: Path):
    run = undisturbed / "run"
    before = (run / "summary.json").read_bytes()
    result = Cli(undisturbed).done(
        "--config", undisturbed / "recipe.py", "--workdir", run
    )
    assert "finished" in result.stdout
    assert (run / "summary.json").read_bytes() == before
    for command in ("evaluate", "predict", "export", "serve"):
        assert f"  python main.py {command} --workdir {quoted(run)}" in result.stdout
    # This run wrote none.
    assert (f"report: {run}" in result.stdout) == (run / "report.html").exists()


@pytest.mark.slow
def test_longer_run_goes_on_and_other_config_is_refused(cli: Cli, write_config):
    config, run = write_config(recipe()), cli.directory / "run"
    words = ["--config", config, "--workdir", run]
    cli.done(*words, "--train.steps", 10)
    other = cli(*words, "--train.steps", 12, "--optimizer.learning-rate", 0.2)
    assert other.code == 2
    assert "optimizer.learning_rate: 0.1 -> 0.2" in other.stderr
    assert "--fresh" in other.stderr
    cli.done(*words, "--train.steps", 12)
    assert read_summary(run)["step"] == 12
    assert [line["step"] for line in read_lines(run, "event")] == [10]
    cli.done(*words, "--train.steps", 4, "--optimizer.learning-rate", 0.2, "--fresh")
    assert read_summary(run)["step"] == 4
    (aside,) = cli.directory.glob("run.old-*")
    assert read_summary(aside)["step"] == 12


@pytest.mark.slow
def test_workdir_holds_what_the_user_guide_says(undisturbed: Path):
    run = undisturbed / "run"
    names = {p.name for p in run.iterdir()}
    assert names == {
        "config.json",
        "data.json",
        "metrics.jsonl",
        "model.json",
        "summary.json",
        "checkpoints",
        "tensorboard",
    }
    summary = read_summary(run)
    plain = {"loss", "accuracy", "top5_accuracy", "num_examples"}
    assert plain <= set(summary["eval"])
    assert summary["eval"]["num_examples"] == 360
    assert {"train", "eval"} == {line["kind"] for line in read_lines(run)}
    reported = [line["step"] for line in read_lines(run, "train")]
    assert reported == [8, 16, 24, 32, 40, 47]
    # Saved every 10 steps, at the end and after each evaluation that was the best so
    # far; the last three stay, and the best.
    saved, best = {10, 20, 30, 40, 47}, {"step": 0, "accuracy": -1.0}
    for line in read_lines(run, "eval"):
        if line["split"] == "validation" and line["accuracy"] >= best["accuracy"]:
            saved.add(line["step"])
            best = line
    assert summary["best"]["step"] == best["step"] > 0
    steps = {int(p.name) for p in (run / "checkpoints").iterdir()}
    assert steps == {*sorted(saved)[-3:], best["step"]}
    config = load_config(undisturbed / "recipe.py")
    # What the recipe leaves open is settled.
    data = replace(config.data, crop_pct=0.875, interpolation="bilinear")
    expected = to_json(replace(config, data=data), RunId.read(run))
    assert (run / "config.json").read_text() == expected
    assert json.loads((run / "config.json").read_text())["train"]["steps"] == 47


@pytest.mark.slow
@pytest.mark.plugins
def test_tensorboard_gets_the_metrics_of_each_split(undisturbed: Path):
    (events,) = (undisturbed / "run" / "tensorboard").iterdir()
    written = events.read_bytes()
    for name in (
        "train/loss",
        "train/learning_rate",
        "validation/loss",
        "test/loss",
        "test/macro_f1",
        "validation/confusion_matrix",
    ):
        assert name.encode() in written


@pytest.mark.slow
def test_early_stop_ends_the_run_for_good(cli: Cli, write_config):
    """A learning rate of almost 0 never improves the loss by enough to be seen."""
    config = write_config(
        recipe(
            optimizer="SGDConfig(learning_rate=1e-30)",
            model='ConvNetConfig(name="cnn4", width=0.1)',
            data='DataConfig(source="digits", batch_size=64, image_size=16)',
            train="TrainConfig(steps=60, eval_every_steps=5, early_stop_patience=2)",
        )
    )
    cli.done("--config", config, "--workdir", "run")
    summary = read_summary(cli.directory / "run")
    assert (summary["step"], summary["stopped_early"]) == (15, True)
    assert "finished" in cli("--config", config, "--workdir", "run").stdout
    words = ["--config", config, "--workdir", "run", "--train.early-stop-patience"]
    cli.done(*words, 3)
    summary = read_summary(cli.directory / "run")
    assert (summary["step"], summary["stopped_early"]) == (20, True)


@pytest.mark.slow
def test_state_without_statistics_comes_back(tmp_path: Path):
    """A checkpoint has only what is not empty."""
    changes = {
        "data": 'DataConfig(source="digits", batch_size=64, image_size=16)',
        "model": "LeNetConfig()",
        "train": "TrainConfig(steps=4, ema_decay=0.9)",
        "logging": "LoggingConfig(every_steps=1)",
    }
    config = write_recipe(tmp_path / "recipe.py", recipe(**changes))
    words = ["--config", str(config), "--workdir"]
    assert main([*words, str(tmp_path / "whole")]) == 0
    part = [*words, str(tmp_path / "part")]
    assert main([*part, "--train.stop-after-steps", "2"]) == 0
    assert main(part) == 0
    ours, theirs = (read_summary(tmp_path / name)["eval"] for name in ("part", "whole"))
    assert ours == theirs
