"""One model of several runs: means of weights, statistics of batch norms."""

import json
import shlex
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxtrain import load_model
from jaxtrain.config.recipe import read_run
from jaxtrain.data import sources
from jaxtrain.data.order import epoch_order
from jaxtrain.inference.model import TrainedModel
from jaxtrain.trees import by_path
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.rows import each_row
from tests.helpers.words import quoted

IMAGES, BATCH = 300, 64


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs of one recipe from the same weights, and a bad model."""
    folder = tmp_path_factory.mktemp("soup")
    text = recipe(
        model='ConvNetConfig(name="convnet", width=0.125)',
        train="TrainConfig(steps=40)",
    )
    write_recipe(folder / "recipe.py", text)
    cli = Cli(folder)
    words = "--config recipe.py --workdir base"
    assert cli(*shlex.split(words)).code == 0
    for name, rate in (("one", 0.1), ("two", 0.03), ("bad", 2.0)):
        words = f"--config recipe.py --workdir {name} --optimizer.learning-rate {rate}"
        words += " --model.pretrained base --train.steps 20"
        result = cli(*shlex.split(words))
        assert result.code == 0, result.stderr
    return folder


def arrays(model: TrainedModel) -> dict[str, np.ndarray]:
    return {k: np.asarray(x) for k, x in by_path((model.params, {})).items()}


def soup(here: Path, words: str, out: Path) -> tuple[TrainedModel, str]:
    result = Cli(here)("average", *shlex.split(words), "--out", str(out))
    assert result.code == 0, result.stderr
    return load_model(out), result.stdout


@pytest.mark.slow
def test_weights_are_means_and_statistics_those_of_training_images(
    here: Path, tmp_path: Path
):
    words = f"one two --images {IMAGES}"
    made, shown = soup(here, words, tmp_path / "soup")
    assert "of 2 models (accuracy of the" in shown
    one, two = (arrays(load_model(here / name)) for name in ("one", "two"))
    found = arrays(made)
    assert found.keys() == one.keys()
    for path, x in found.items():
        np.testing.assert_allclose(x, (one[path] + two[path]) / 2, rtol=1e-6)
    # Of the first norm, behind a convolution of the images as an evaluation sees them.
    config = read_run(here / "one")
    source = sources.load(config.data, config.seed).train
    chosen = epoch_order(0, 0, len(source))[:IMAGES]
    about, kernel = made.description, made.params["conv1"]["kernel"]
    means, variances = [], []
    for start in range(0, IMAGES - BATCH + 1, BATCH):
        pixels = source.read(chosen[start : start + BATCH])["image"]
        images = (pixels / 255 - about.mean) / about.std
        features = jax.lax.conv_general_dilated(
            *(images.astype(np.float32), kernel, (1, 1), "SAME"),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        means.append(np.mean(features, (0, 1, 2)))
        variances.append(np.var(features, (0, 1, 2)))
    norm = made.model_state["norm1"]
    np.testing.assert_allclose(norm["mean"], np.mean(means, 0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(norm["var"], np.mean(variances, 0), rtol=1e-4)


@pytest.mark.slow
def test_without_images_statistics_are_means_of_the_models(here: Path, tmp_path: Path):
    made, _ = soup(here, "one two --images 0", tmp_path / "soup")
    one, two = (by_path(load_model(here / name).model_state) for name in ("one", "two"))
    for path, x in by_path(made.model_state).items():
        expected = (np.asarray(one[path]) + np.asarray(two[path])) / 2
        np.testing.assert_allclose(x, expected, rtol=1e-6)


@pytest.mark.slow
def test_a_greedy_soup_leaves_out_what_makes_it_worse(here: Path, tmp_path: Path):
    made, shown = soup(here, "bad one two --greedy", tmp_path / "soup")
    rows = dict(
        [cell.strip() for cell in line.split("│")[1:3]]
        for line in shown.splitlines()
        if "│" in line
    )
    assert rows["bad"].endswith("left out")
    names = ("bad", "one", "two", "mean")
    value = {name: float(rows[name].split()[0].strip(",")) for name in names}
    assert value["mean"] >= max(value["one"], value["two"]) > value["bad"]
    assert np.isfinite(made.params["conv1"]["kernel"]).all()


@pytest.mark.slow
def test_a_soup_is_evaluated_and_begins_a_run(here: Path, tmp_path: Path):
    made = tmp_path / "soup"
    soup(here, "one two", made)
    config = read_run(here / "one")
    test = sources.load(config.data, config.seed).test
    read = test.read(np.arange(len(test)))
    np.savez(tmp_path / "digits.npz", image=read["image"], label=read["target"])
    cli, out = Cli(here), tmp_path / "found.json"
    words = (
        f"--workdir {quoted(made)} --data.source "
        f"arrays:{quoted(tmp_path)}/digits.npz --split all"
    )
    result = cli("evaluate", *shlex.split(words), "--out", str(out))
    assert result.code == 0, result.stderr
    assert json.loads(out.read_text())["metrics"]["accuracy"] > 0.5
    words = (
        f"--config recipe.py --workdir {quoted(tmp_path)}/next "
        f"--model.pretrained {quoted(made)}"
    )
    result = cli(*shlex.split(words), "--train.steps", "10")
    assert result.code == 0, result.stderr


@pytest.mark.slow
@each_row(
    ("words", "message"),
    [
        ("seeded one --greedy --out s", "that no model was trained on"),
        ("one --out s", "expected two or more models to"),
        ("nothing one --out s", "the first model is not the directory of a run"),
        ("one wide --out s", "model 2 differs from the first model: model = "),
    ],
)
def test_what_is_refused(here: Path, words: str, message: str):
    others = {
        "wide": "--model.width 0.25",
        "seeded": "--seed 5 --model.pretrained base",
    }
    for name, options in others.items():
        if name in words and not (here / name).exists():
            made = f"--config recipe.py --workdir {name} --train.steps 10 {options}"
            assert Cli(here)(*shlex.split(made)).code == 0
    result = Cli(here)("average", *shlex.split(words))
    assert result.code == 2
    assert message in " ".join(result.stderr.split())
