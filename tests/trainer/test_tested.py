"""A run has one model: its final test is of the checkpoint that other commands use."""

import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from jaxtrain.checkpoints.folder import committed_steps
from jaxtrain.checkpoints.manifest import best_step
from jaxtrain.cli import main
from jaxtrain.trainer.trainer import Trainer
from tests.helpers.damage import files, zero
from tests.helpers.processes import Cli, run_two
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import assert_same_run, read_lines, read_summary


def manifest(best: int | None) -> dict[str, Any]:
    return {"progress": {"best": None if best is None else {"step": best}}}


@each_row(
    ("best", "steps", "expected"),
    [(4, [2, 4, 8], 4), (8, [2, 4, 8], 8), (4, [2, 8], 8), (None, [2, 8], 8)],
)
def test_the_model_is_the_best_checkpoint_or_else_the_newest(
    best: int | None, steps: list[int], expected: int
):
    assert best_step(manifest(best), steps) == expected


# The learning rate rises until it does harm: the best checkpoint is an early one.
RUN = recipe(
    data='DataConfig(source="digits", batch_size=64)',
    optimizer="SGDConfig(learning_rate=5.0, warmup_steps=15)",
    train="TrainConfig(steps=16, ema_decay=0.5, eval_every_steps=4)",
    checkpoint="CheckpointConfig(every_steps=16, keep=1)",
    logging="LoggingConfig(every_steps=4, tensorboard=False)",
)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    write_recipe(folder / "recipe.py", RUN)
    result = Cli(folder).done("--config", "recipe.py", "--workdir", "run")
    (folder / "stdout").write_text(result.stdout)
    return folder


@pytest.fixture
def run(undisturbed: Path, tmp_path: Path) -> Path:
    """A copy of the finished run."""
    shutil.copytree(undisturbed, tmp_path, dirs_exist_ok=True)
    return tmp_path / "run"


def again(run: Path) -> str:
    """Carry the run on, as after a kill between its last save and its summary."""
    (run / "summary.json").unlink()
    result = Cli(run.parent).done("--config", "recipe.py", "--workdir", "run")
    return result.stderr


def evaluated(run: Path) -> dict[str, Any]:
    words = ["evaluate", "--workdir", "run", "--out", "found.json"]
    Cli(run.parent).done(*words)
    return json.loads((run.parent / "found.json").read_text())


@pytest.mark.plugins
@pytest.mark.slow
def test_summary_screen_and_report_are_of_the_model_that_evaluate_takes(run: Path):
    summary, found = read_summary(run), evaluated(run)
    model, last = summary["model"], summary["last"]
    assert found["run"]["step"] == model["step"] < last["step"] == summary["step"] == 16
    # The same programs on the same device: the same bits.
    assert found["metrics"] == summary["eval"]
    validation = {
        line["step"]: line
        for line in read_lines(run, "eval")
        if line["split"] == "validation"
    }
    best = max(validation.values(), key=lambda line: line["accuracy"])
    assert best["step"] == model["step"] == summary["best"]["step"]
    for weights in (model, last):
        told = validation[weights["step"]]
        assert {**told, **weights["validation"]} == told
    accuracy = {step: f"{line['accuracy']:.4f}" for step, line in validation.items()}
    screen = (run.parent / "stdout").read_text()
    for name, weights in (("tested", model), ("last", last)):
        row = rf"{name} weights *│ step {weights['step']}, validation accuracy "
        assert re.search(row + accuracy[weights["step"]], screen), name
    assert main(["report", "--workdir", str(run)]) == 0
    seen = (run / "report.html").read_text()
    assert f"The results are from the checkpoint of step {model['step']}," in seen
    assert f"of the test split, with the model of step {model['step']}" in seen
    assert "validation accuracy of the last weights, step 16" in seen


@pytest.mark.slow
@pytest.mark.plugins
def test_several_devices_test_the_same_checkpoint(run: Path):
    """As after a kill between the last save and the summary."""
    before = read_summary(run)
    (run / "summary.json").unlink()
    more = ["--config", "recipe.py", "--workdir", "run"]
    more += ["--parallel.pipeline-stages", "2"]
    Cli(run.parent).done(*more, JAX_NUM_CPU_DEVICES="4")
    after = read_summary(run)
    assert after["num_devices"] == 4 and after["model"] == before["model"]
    # The sums of an evaluation are divided among the devices: rounding of float32.
    assert after["eval"]["loss"] == pytest.approx(before["eval"]["loss"], rel=1e-5)


@pytest.mark.slow
def test_two_processes_test_the_same_checkpoint(run: Path):
    before = read_summary(run)
    (run / "summary.json").unlink()
    result = run_two(run.parent, "--config", "recipe.py", "--workdir", "run")
    assert result.code == 0, result.stderr
    after = read_summary(run)
    assert after["num_processes"] == 2 and after["model"] == before["model"]
    assert after["eval"]["loss"] == pytest.approx(before["eval"]["loss"], rel=1e-5)


@pytest.mark.slow
def test_a_damaged_best_checkpoint_is_put_aside_and_the_last_is_tested(run: Path):
    best = read_summary(run)["model"]["step"]
    for path in files(run / "checkpoints" / str(best) / "state"):
        zero(path)
    stderr = again(run)
    assert re.search(rf"warning: .*step {best}:.*; moved aside", stderr)
    assert (run / "checkpoints" / f"quarantine-{best}").is_dir()
    summary, found = read_summary(run), evaluated(run)
    assert found["run"]["step"] == summary["model"]["step"] == 16
    assert found["metrics"] == summary["eval"]
    assert summary["best"]["step"] == best


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--data.validation-fraction 0", "tested weights *│ step 4, not validated"),
        (
            "--checkpoint.keep-best 0 --train.eval-every-steps 2",
            "tested weights *│ step 4, validation",
        ),
    ],
)
def test_without_a_best_checkpoint_the_last_is_the_model(
    cli: Cli, write_config: Any, words: str, told: str
):
    run = recipe(
        optimizer="SGDConfig(learning_rate=5.0, warmup_steps=3)",
        train="TrainConfig(steps=4)",
    )
    result = cli.done("--config", write_config(run), "--workdir", "run", *words.split())
    assert re.search(told, result.stdout), result.stdout
    summary = read_summary(cli.directory / "run")
    assert summary["model"] == summary["last"]
    found = evaluated(cli.directory / "run")
    assert found["run"]["step"] == 4 and found["metrics"] == summary["eval"]


@pytest.mark.slow
def test_a_signal_in_the_evaluation_of_the_best_changes_nothing(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The checkpoint of the stop gets its metrics when the run goes on."""
    best = read_summary(undisturbed / "run")["model"]["step"]
    evaluate, calls = Trainer.evaluate, []

    def interrupted(*args: Any, **given: Any) -> Any:
        calls.append(args)
        if len(calls) == best / 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return evaluate(*args, **given)

    words = ["--config", str(undisturbed / "recipe.py"), "--workdir", str(tmp_path)]
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "evaluate", interrupted)
        assert main(words) == 143
    assert committed_steps(tmp_path / "checkpoints")[-1] == best
    assert main(words) == 0
    assert_same_run(undisturbed / "run", tmp_path, 16)
    folders = (undisturbed / "run" / "checkpoints", tmp_path / "checkpoints")
    assert committed_steps(folders[0]) == committed_steps(folders[1]) == [best, 16]
    assert read_summary(tmp_path)["model"] == read_summary(undisturbed / "run")["model"]
