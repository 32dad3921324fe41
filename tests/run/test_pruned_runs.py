"""Runs that prune: stops and kills, devices, their model, and what comes after them."""

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxtrain import load_model
from jaxtrain.trees import by_path
from tests.helpers.numerics import FP64, TOLERANCE
from tests.helpers.processes import Cli, run_two
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import assert_same_run, read_lines, read_summary
from tests.helpers.tiers import thinned
from tests.helpers.words import quoted

# An epoch of 5 steps, two micro-batches a step.
STEPS = 10
CHANGES = {
    "data": 'DataConfig(source="synthetic:8x8x1/4/96", batch_size=16)',
    "model": 'ModelConfig(name="convnet", width=0.5, dropout=0.1)',
    "optimizer": 'OptimizerConfig(name="sgd", learning_rate=0.01, momentum=0.9, '
    "weight_decay=0.01, clip_norm=1.0)",
    "train": f"TrainConfig(steps={STEPS}, accumulate_steps=2, ema_decay=0.9, "
    "eval_every_steps=2)",
    "checkpoint": "CheckpointConfig(every_steps=3)",
    "logging": "LoggingConfig(every_steps=1, tensorboard=False)",
}
# After steps 3, 4, 5, 6 and 7, or after the third alone.
GRADUAL = "start_epochs=0.6, end_epochs=1.4"
CASES = {
    "global": f'sparsity=0.8, {GRADUAL}, layers=("conv*",)',
    "layer": f'sparsity=0.8, {GRADUAL}, scope="layer", layers=("conv*", "head")',
    "pattern": 'pattern="2:4", start_epochs=0.6, layers=("conv*", "head")',
}


def written(folder: Path, case: str, **changes: str) -> Path:
    sections = {**CHANGES, "prune": f"PruneConfig({CASES[case]})", **changes}
    return write_recipe(folder / "recipe.py", recipe(precision='"fp64"', **sections))


def start(folder: Path, case: str, *words: object, devices: int = 1) -> Path:
    """Train, or go on, in `folder`; return the workdir."""
    folder.mkdir(exist_ok=True)
    result = Cli(folder)(
        *("--config", written(folder, case), "--workdir", folder / "run"),
        *(f"--{word}" for text in words for word in str(text).split()),
        JAX_NUM_CPU_DEVICES=str(devices),
        **FP64,
    )
    assert result.code == 0, result.stderr
    return folder / "run"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory):
    """Return a function from a case to its run that nothing stopped."""
    made: dict[str, Path] = {}

    def get(case: str) -> Path:
        if case not in made:
            made[case] = start(tmp_path_factory.mktemp(case), case)
        return made[case]

    return get


def values(run: Path, kind: str, name: str) -> np.ndarray:
    return np.array([line[name] for line in read_lines(run, kind)])


@pytest.mark.parametrize("case", thinned(3, ["layer", "pattern", "global"]))
def test_a_run_that_was_stopped_ends_the_same(case: str, whole: Any, tmp_path: Path):
    """Before the first pruning, among them, and after the last."""
    for stop in (2, 5, 9):
        start(tmp_path, case, f"train.stop-after-steps={stop}")
    assert_same_run(whole(case), start(tmp_path, case), STEPS)
    told = values(whole(case), "train", "sparsity")
    first = [0, 0] if case == "pattern" else [0, 0, 0]
    assert list(told[: len(first)]) == first
    assert told[-1] == pytest.approx(0.5 if case == "pattern" else 0.8, abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "preset"), [("global", "fsdp"), ("pattern", "2d")])
def test_eight_devices_prune_the_same_weights(
    case: str, preset: str, whole: Any, tmp_path: Path
):
    """And one goes on with what they have saved."""
    words = f"parallel.preset={preset}"
    start(tmp_path, case, words, "train.stop-after-steps=5", devices=8)
    many = start(tmp_path, case, devices=1)
    for kind, name in (("train", "loss"), ("train", "sparsity"), ("eval", "loss")):
        ours, theirs = (values(run, kind, name) for run in (many, whole(case)))
        np.testing.assert_allclose(ours, theirs, rtol=TOLERANCE)
    assert read_summary(many)["sparsity"] == read_summary(whole(case))["sparsity"]


@pytest.mark.slow
def test_two_processes_prune_the_same_weights(whole: Any, tmp_path: Path):
    config = written(tmp_path, "global")
    words = ["--config", config, "--workdir", tmp_path / "run"]
    result = run_two(tmp_path, *words, **FP64)
    assert result.code == 0, result.stderr
    ours, theirs = (
        values(run, "train", "loss") for run in (tmp_path / "run", whole("global"))
    )
    np.testing.assert_allclose(ours, theirs, rtol=TOLERANCE)
    summaries = map(read_summary, (tmp_path / "run", whole("global")))
    assert next(summaries)["sparsity"] == next(summaries)["sparsity"]


# On digits, where the dense model is better than the pruned one.
DIGITS = {
    **CHANGES,
    "data": 'DataConfig(source="digits", batch_size=64)',
    "model": 'ModelConfig(name="convnet", width=0.25)',
    "optimizer": 'OptimizerConfig(name="sgd", learning_rate=0.1)',
    "train": "TrainConfig(epochs=8, early_stop_patience=2)",
    "checkpoint": "CheckpointConfig(every_epochs=1)",
    "logging": "LoggingConfig(every_steps=10, tensorboard=False, report=True)",
}


# Weights of 2,304 that are not 0.
LEFT = 2304 - round(0.995 * 2304)


@pytest.fixture(scope="module")
def pruned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run on digits, of whose weights of one layer few are not 0."""
    folder = tmp_path_factory.mktemp("digits")
    sections = {
        **DIGITS,
        "prune": "PruneConfig(sparsity=0.995, start_epochs=4, end_epochs=6)",
    }
    config = write_recipe(folder / "recipe.py", recipe(**sections))
    result = Cli(folder)("--config", config, "--workdir", "run")
    assert result.code == 0, result.stderr
    assert "0.995 of 2,304 weights of 1 kernel" in result.stdout
    return folder


@pytest.mark.slow
def test_the_model_of_a_run_is_a_pruned_one(pruned: Path):
    """Though validation was best before: and early stopping has not heeded that."""
    summary = read_summary(pruned / "run")
    assert summary["model"]["epoch"] >= 6 and not summary["stopped_early"]
    assert summary["best"]["epoch"] >= 6
    early = [line for line in read_lines(pruned / "run", "eval") if line["epoch"] < 6]
    assert max(line["accuracy"] for line in early) > summary["best"]["value"]
    layers = summary["sparsity"]["layers"]
    assert layers["conv2/kernel"]["nonzero"] == LEFT
    assert layers["conv1/kernel"]["sparsity"] == 0
    page = (pruned / "run" / "report.html").read_text()
    assert "Sparsity" in page and "conv2/kernel" in page and "99.5%" in page


@pytest.mark.slow
def test_evaluate_and_export_keep_the_zeros(pruned: Path):
    onnx = pytest.importorskip("onnx")
    numpy_helper = pytest.importorskip("onnx.numpy_helper")
    result = Cli(pruned)("evaluate", "--workdir", "run")
    assert result.code == 0, result.stderr
    assert f"{LEFT} of 2,304 weights are not 0" in result.stdout
    found = json.loads((pruned / "run" / "evaluation.json").read_text())["sparsity"]
    assert found == read_summary(pruned / "run")["sparsity"]
    words = "export --workdir run --format onnx --out model.onnx"
    result = Cli(pruned)(*shlex.split(words))
    assert result.code == 0, result.stderr
    graph = onnx.load(pruned / "model.onnx").graph
    kernels = [numpy_helper.to_array(x) for x in graph.initializer]
    (kernel,) = (x for x in kernels if x.size == 2304)
    assert np.count_nonzero(kernel) == LEFT


@pytest.mark.slow
def test_a_trained_model_is_pruned_by_fine_tuning(pruned: Path):
    """A dense run with the options given, and a pruned one that stays as it is."""

    def weights(name: str) -> np.ndarray:
        found = by_path(load_model(pruned / name, "latest").params)
        return np.asarray(found["conv2/kernel"])

    config = write_recipe(pruned / "dense.py", recipe(**DIGITS))
    words = f"--config {quoted(config)} --workdir dense --train.epochs 1"
    assert Cli(pruned)(*shlex.split(words)).code == 0
    words = f"--config {quoted(config)} --workdir tuned --train.epochs 2"
    words += " --model.pretrained dense --prune.pattern 2:4"
    result = Cli(pruned)(*shlex.split(words))
    assert result.code == 0, result.stderr
    assert "2 of 4 input channels of 2,304 weights" in result.stdout
    groups = np.moveaxis(weights("tuned"), 2, -1).reshape(-1, 4)
    assert ((groups != 0).sum(-1) == 2).all()
    # The larger ones of the dense model have stayed.
    dense = np.abs(np.moveaxis(weights("dense"), 2, -1).reshape(-1, 4))
    assert (np.where(groups != 0, dense, np.inf).min(-1) >= np.median(dense, -1)).all()
    words = f"--config {quoted(config)} --workdir further --train.epochs 2"
    words += " --model.pretrained run --prune.sparsity 0.995"
    words += " --prune.end-epochs 0"
    result = Cli(pruned)(*shlex.split(words))
    assert result.code == 0, result.stderr
    before, after = weights("run"), weights("further")
    np.testing.assert_array_equal(before == 0, after == 0)
    assert not np.array_equal(before, after)


@pytest.mark.slow
def test_a_run_does_not_begin_to_prune_in_its_midst(cli: Cli):
    config = write_recipe(cli.directory / "recipe.py", recipe(**CHANGES))
    words = f"--config {quoted(config)} --workdir run --train.stop-after-steps 3"
    assert cli(*shlex.split(words)).code == 0
    result = cli(*shlex.split(words), "--prune.sparsity", "0.5")
    assert result.code == 2
    assert "prune.sparsity" in result.stderr
