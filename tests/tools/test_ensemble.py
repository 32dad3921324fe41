"""Ensembles of finished runs, by the command line."""

import json
from pathlib import Path

import numpy as np
import pytest

from jaxtrain import load_model
from jaxtrain.config.recipe import read_run
from jaxtrain.data import sources
from jaxtrain.data.replacements import read_filled
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe

DATA = (
    'DataConfig(source="synthetic:8x8x1/4/96", batch_size=16, mean=(0.5,), std=(0.2,), '
    "augment=AugmentConfig(crop_padding=1))"
)
TRAIN = "TrainConfig(steps=12, ema_decay=0.9, eval_every_steps=4)"


def images_of(workdir: Path) -> np.ndarray:
    config = read_run(workdir)
    test = sources.load(config.data, config.seed).test
    return read_filled(test, np.arange(8))["image"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two finished runs, and the ensemble of both."""
    folder = tmp_path_factory.mktemp("ensemble")
    write_recipe(folder / "recipe.py", recipe(data=DATA, train=TRAIN))
    cli = Cli(folder)
    for seed in range(2):
        words = f"--config recipe.py --workdir seed{seed} --seed {seed}"
        assert cli(*words.split()).code == 0
    result = cli("ensemble", "seed0", "seed1", "--out", "joined")
    assert result.code == 0, result.stderr
    return folder


@pytest.mark.slow
def test_joined_runs_put_out_the_mean_of_their_probabilities(runs: Path):
    images = images_of(runs / "seed0")
    each = [load_model(runs / f"seed{seed}").predict(images) for seed in range(2)]
    joined = load_model(runs / "joined").predict(images)
    # Of float32, in another order.
    np.testing.assert_allclose(joined, np.mean(each, 0), rtol=1e-5, atol=1e-6)
    summary = json.loads((runs / "joined" / "summary.json").read_text())
    alone = [
        json.loads((runs / f"seed{seed}" / "summary.json").read_text())["eval"]
        for seed in range(2)
    ]
    wanted = [
        {"run": f"seed{seed}", "accuracy": one["accuracy"], "loss": one["loss"]}
        for seed, one in enumerate(alone)
    ]
    assert summary["members"] == wanted


@pytest.mark.plugins
@pytest.mark.slow
def test_commands_take_a_joined_ensemble_as_a_run(runs: Path):
    cli = Cli(runs)
    words = [
        "evaluate --workdir joined --tta flip",
        "export --workdir joined --format onnx --out joined.onnx",
        "export --workdir joined --format safetensors --out exported",
        "evaluate --workdir exported --data.source synthetic:8x8x1/4/96 --out e.json",
        "report --workdir joined",
        "checkpoint --verify --workdir joined",
    ]
    for line in words:
        result = cli(*line.split())
        assert result.code == 0, f"{line}: {result.stderr}"
    images = images_of(runs / "joined")
    np.testing.assert_array_equal(
        load_model(runs / "exported").predict(images),
        load_model(runs / "joined").predict(images),
    )


@pytest.mark.slow
def test_what_cannot_be_done_with_an_ensemble_is_told(runs: Path):
    cli = Cli(runs)
    rows = {
        "ensemble seed0 --out new": "expected two or more runs",
        "ensemble seed0 nothing --out new": "is not the directory of a run",
        "ensemble seed0 seed1 --out joined": "already exists",
        "ensemble joined joined --out new": "is an ensemble of 2 models",
        "average joined joined --out new": "is an ensemble of 2 models",
        "compact --workdir joined --flops 0.5 --out new": "is an ensemble of 2 models",
        "--config recipe.py --workdir new --model.pretrained joined": "a single model",
        "--config recipe.py --workdir new --method distillation "
        "--method.teacher joined": "expected a single",
        "--config recipe.py --workdir joined": "cannot be trained",
        "--config recipe.py --workdir joined --train.steps 20": "cannot be trained",
    }
    for line, told in rows.items():
        result = cli(*line.split())
        assert (result.code, told in result.stderr) == (2, True), result.stderr
    assert not (runs / "new").exists()
