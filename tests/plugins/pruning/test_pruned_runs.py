"""Runs that prune: their model, and what comes after them."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from jaxtrain import load_model
from jaxtrain.trees import by_path
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import read_lines, read_summary
from tests.helpers.words import quoted

# On digits, where the dense model is better than the pruned one.
DIGITS = {
    "model": 'ConvNetConfig(name="convnet", width=0.25)',
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
    result = Cli(folder).done("--config", config, "--workdir", "run")
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
    result = Cli(pruned).done("evaluate", "--workdir", "run")
    assert f"{LEFT} of 2,304 weights are not 0" in result.stdout
    found = json.loads((pruned / "run" / "evaluation.json").read_text())["sparsity"]
    assert found == read_summary(pruned / "run")["sparsity"]
    words = "export --workdir run --format onnx --out model.onnx"
    Cli(pruned).done(*shlex.split(words))
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
    Cli(pruned).done(*shlex.split(words))
    words = f"--config {quoted(config)} --workdir tuned --train.epochs 2"
    words += " --model.pretrained dense --prune.pattern 2:4"
    result = Cli(pruned).done(*shlex.split(words))
    assert "2 of 4 input channels of 2,304 weights" in result.stdout
    groups = np.moveaxis(weights("tuned"), 2, -1).reshape(-1, 4)
    assert ((groups != 0).sum(-1) == 2).all()
    # The larger ones of the dense model have stayed.
    dense = np.abs(np.moveaxis(weights("dense"), 2, -1).reshape(-1, 4))
    assert (np.where(groups != 0, dense, np.inf).min(-1) >= np.median(dense, -1)).all()
    words = f"--config {quoted(config)} --workdir further --train.epochs 2"
    words += " --model.pretrained run --prune.sparsity 0.995"
    words += " --prune.end-epochs 0"
    Cli(pruned).done(*shlex.split(words))
    before, after = weights("run"), weights("further")
    np.testing.assert_array_equal(before == 0, after == 0)
    assert not np.array_equal(before, after)


@pytest.mark.slow
def test_a_run_does_not_begin_to_prune_in_its_midst(cli: Cli):
    config = write_recipe(cli.directory / "recipe.py", recipe(**DIGITS))
    words = f"--config {quoted(config)} --workdir run --train.stop-after-steps 3"
    cli.done(*shlex.split(words))
    result = cli(*shlex.split(words), "--prune.sparsity", "0.5")
    assert result.code == 2
    assert "prune.sparsity" in result.stderr
