"""Runs that train on windows of images and are evaluated on whole ones."""

import dataclasses
import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jaxtrain import load_model
from jaxtrain.data.window_grid import starts
from jaxtrain.inference.model import TrainedModel
from jaxtrain.weights import trust
from tests.helpers.masked import SIDE, mask_recipe, shapes, write_masks
from tests.helpers.numerics import FP64, TOLERANCE
from tests.helpers.processes import ROOT, Cli
from tests.helpers.recipes import write_recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import read_lines, read_summary
from tests.helpers.words import quoted

WHOLE = 40
SPLITS = {"train": 40, "test": 6}
CODER = f"{ROOT / 'tests' / 'helpers' / 'autoencoder.py'}:AutoEncoder"
# On 8 devices.
MESH = "--parallel.preset data_parallel --parallel.spatial 2"


def write_run(folder: Path, more: str = "", source: str = "masks:set") -> Path:
    """Write a recipe of windows of 16x16 of images of 40x40, and the images."""
    write_masks(folder / "set", SPLITS, side=WHOLE)
    augment = more or "augment=AugmentConfig(scale_jitter=(0.5, 2.0))"
    data = f'crop_mode="squash", sliding_size={WHOLE}, '
    text = mask_recipe(source, data=data + augment, train="steps=8")
    text = text.replace(", crop_pct=1.0", "")
    return write_recipe(folder / "recipe.py", text)


def train(folder: Path, words: str = "", **env: str) -> None:
    Cli(folder).done(*shlex.split(f"--config recipe.py --workdir run {words}"), **env)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with such a run."""
    folder = tmp_path_factory.mktemp("sliding")
    write_run(folder)
    train(folder)
    trust.trust(folder / "run")
    return folder


def of_windows(model: TrainedModel, image: np.ndarray) -> np.ndarray:
    """Return the mean probabilities of the windows of an image (H, W), one by one."""
    about = dataclasses.replace(model.description, sliding_size=None)
    net = dataclasses.replace(model, description=about)
    total, counts = np.zeros((*image.shape, 3)), np.zeros((*image.shape, 1))
    places = starts(WHOLE, SIDE)
    for y in places:
        for x in places:
            part = np.s_[y : y + SIDE, x : x + SIDE]
            total[part] += net.predict(image[part][None, ..., None])[0]
            counts[part] += 1
    return total / counts


@pytest.mark.slow
def test_metrics_are_of_whole_images_in_a_plain_loop_over_windows(here: Path):
    model, confusion, losses = load_model(here / "run"), np.zeros((3, 3), int), []
    for path in sorted((here / "set" / "images" / "test").iterdir()):
        image, mask = (
            np.asarray(Image.open(p))
            for p in (path, here / "set" / "masks" / "test" / path.name)
        )
        p = of_windows(model, image)
        np.testing.assert_allclose(
            model.predict(image[None, ..., None])[0], p, rtol=1e-4, atol=1e-6
        )
        np.add.at(confusion, (mask.ravel(), p.argmax(-1).ravel()), 1)
        losses.append(-np.log(np.take_along_axis(p, mask[..., None].astype(int), -1)))
    found = read_summary(here / "run")["eval"]
    assert np.sum(found["confusion_matrix"]) == SPLITS["test"] * WHOLE**2
    np.testing.assert_array_equal(found["confusion_matrix"], confusion)
    # Means of float32.
    np.testing.assert_allclose(found["loss"], np.mean(losses), rtol=1e-5)


@pytest.mark.slow
def test_commands_see_whole_images(here: Path, tmp_path: Path):
    cli = Cli(here)
    cli.done(*["evaluate", "--workdir", "run", "--trust"])
    found = json.loads((here / "run" / "evaluation.json").read_text())["metrics"]
    assert found == read_summary(here / "run")["eval"]
    # All of another set, by its name.
    words = "evaluate --workdir run --trust --split all --data.source masks:./set"
    cli.done(*shlex.split(words), "--out", str(tmp_path / "all.json"))
    found = json.loads((tmp_path / "all.json").read_text())["metrics"]
    assert np.sum(found["confusion_matrix"]) == sum(SPLITS.values()) * WHOLE**2
    # An image of another size is seen whole, and its mask has its size.
    Image.open(here / "set" / "images" / "test" / "000.png").resize((70, 50)).save(
        tmp_path / "a.png"
    )
    words = (
        f"predict --workdir run --trust --masks {quoted(tmp_path)}/m "
        f"{quoted(tmp_path)}/a.png"
    )
    cli.done(*shlex.split(words))
    mask = np.asarray(Image.open(tmp_path / "m" / "a.png.png"))
    assert mask.shape == (50, 70) and mask.max() < 3
    for words in (
        "report --workdir run --trust",
        "export --workdir run --trust --format stablehlo --out "
        f"{quoted(tmp_path)}/x.stablehlo",
        "data --check --config recipe.py --out report",
        "data --preview --config recipe.py --out preview.png",
    ):
        cli.done(*shlex.split(words))
    assert "predicted" in (here / "run" / "report.html").read_text()


@pytest.mark.exhaustive
def test_on_eight_devices_the_metrics_are_the_same(tmp_path: Path):
    found = {}
    for name, words, devices in (("one", "", "1"), ("many", MESH, "8")):
        write_run(tmp_path / name)
        # Averages, whose statistics are computed anew from windows.
        words += " --precision fp64 --data.batch-size 16 --optimizer.lookahead-steps 2"
        train(tmp_path / name, words, **FP64, JAX_NUM_CPU_DEVICES=devices)
        found[name] = tmp_path / name / "run"
    assert read_summary(found["many"])["num_devices"] == 8
    for metric in ("loss", "mean_iou"):
        one, many = (
            [line[metric] for line in read_lines(found[name], "eval")] for name in found
        )
        np.testing.assert_allclose(many, one, rtol=TOLERANCE)
    ours, theirs = (read_summary(found[name])["eval"] for name in found)
    assert ours["confusion_matrix"] == theirs["confusion_matrix"]


@pytest.mark.slow
def test_arrays_of_one_size_are_cut_in_the_step(tmp_path: Path):
    """Evaluations see the whole of them, as large as they are stored."""
    augment = 'cache="device", augment=AugmentConfig(random_resized_crop=True)'
    write_run(tmp_path, augment, "arrays:set.npz")
    images, masks = shapes(46, WHOLE)
    np.savez(tmp_path / "set.npz", image=images, label=masks)
    train(tmp_path)
    found = read_summary(tmp_path / "run")["eval"]
    assert np.sum(found["confusion_matrix"]) == found["num_examples"] * WHOLE**2


@pytest.mark.slow
@each_row(
    ("words", "told"),
    [
        (f"--task {quoted(CODER)}", "a class for each pixel"),
        ("--data.cache device", "host crops"),
        ("--parallel.pipeline-stages 2", "images of one size"),
        ("--train.tta flip", "tta"),
    ],
)
def test_what_whole_images_do_not_go_with(here: Path, words: str, told: str):
    result = Cli(here)(*shlex.split(f"--config recipe.py --workdir x {words}"))
    assert result.code == 2, result.stdout
    assert told in result.stderr, result.stderr
