"""What reads the training split of a run of windows sees what evaluations show."""

import dataclasses
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from jaxtrain import load_model
from jaxtrain.config import Config
from jaxtrain.config.recipe import read_run
from jaxtrain.data import sources
from jaxtrain.data.image_source import Source
from jaxtrain.data.order import epoch_order
from jaxtrain.data.window_grid import starts
from jaxtrain.inference.model import TrainedModel
from jaxtrain.plugins.compact.compact import open_channels
from jaxtrain.plugins.compact.importance import by_taylor
from jaxtrain.plugins.report.sample import example_names
from jaxtrain.tools.evaluation.passes import Pass
from jaxtrain.tools.evaluation.subject import open_subject
from jaxtrain.trees import by_path
from jaxtrain.weights import trust
from tests.helpers.command import float64
from tests.helpers.masked import SIDE, mask_recipe, shapes, write_masks
from tests.helpers.numerics import FP64, TOLERANCE
from tests.helpers.processes import ROOT, Cli
from tests.helpers.recipes import write_recipe
from tests.helpers.tiers import thinned
from tests.helpers.words import quoted

WHOLE, BATCH = 40, 8
# Images that channels are judged by, and the step of a finite difference.
NUM, STEP = 5, 1e-6
PLACES = starts(WHOLE, SIDE)
SPLITS = {"train": 40, "test": 6}
# Windows that the host cuts of files, and the device of arrays of one size.
AUGMENT = {
    "masks": "augment=AugmentConfig(scale_jitter=(0.5, 2.0))",
    "arrays": 'cache="device", augment=AugmentConfig(random_resized_crop=True)',
}
SPREAD = f"{ROOT / 'tests' / 'helpers' / 'spread_model.py'}:SpreadMaps"
LOOKAHEAD = "AdamConfig(learning_rate=0.01, lookahead_steps=2)"


def write_run(folder: Path, kind: str, steps: int) -> None:
    """Write a recipe of windows of 16x16 of images of 40x40, and the images."""
    source = "masks:set"
    if kind == "arrays":
        source = "arrays:set.npz"
        images, masks = shapes(46, WHOLE)
        np.savez(folder / "set.npz", image=images, label=masks)
    else:
        write_masks(folder / "set", SPLITS, side=WHOLE)
    data = f'crop_mode="squash", sliding_size={WHOLE}, '
    text = mask_recipe(source, data=data + AUGMENT[kind], train=f"steps={steps}")
    text = text.replace(", crop_pct=1.0", "").replace(
        "AdamConfig(learning_rate=0.01)", LOOKAHEAD
    )
    write_recipe(folder / "recipe.py", text)


def call(folder: Path, words: str, **env: str) -> Any:
    return Cli(folder).done(*shlex.split(words), **env)


@pytest.fixture(scope="module", params=thinned(2, AUGMENT))
def exact(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run in float64, whose weights are averages."""
    folder = tmp_path_factory.mktemp(request.param)
    write_run(folder, request.param, steps=8)
    call(folder, "--config recipe.py --workdir run --precision fp64", **FP64)
    trust.trust(folder / "run")
    return folder


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A longer run, of files, whose model is good."""
    folder = tmp_path_factory.mktemp("good")
    write_run(folder, "masks", steps=120)
    call(folder, "--config recipe.py --workdir run")
    trust.trust(folder / "run")
    return folder


def training_split(folder: Path) -> tuple[Config, Source]:
    """Return the config of a run, with a full path of its source, and the split."""
    config = read_run(folder / "run")
    kind, _, name = config.data.source.partition(":")
    data = dataclasses.replace(config.data, source=f"{kind}:{folder / name}")
    config = dataclasses.replace(config, data=data)
    return config, sources.load(data, config.seed).train


def pixels_of(folder: Path) -> np.ndarray:
    """Return the training images of a run as they are stored, uint8 (N, H, W)."""
    _, train = training_split(folder)
    if (folder / "set.npz").exists():
        return np.load(folder / "set.npz")["image"][train.indices]
    names = example_names(train, np.arange(len(train)))
    return np.stack([np.asarray(Image.open(folder / "set" / name)) for name in names])


def windows_in_turn(images: np.ndarray, *, rest: bool = False) -> Iterator[np.ndarray]:
    """Yield batches: a window of each image, of other places, then the next of each.

    The last batch is left out if it is not whole, unless `rest` is True.
    """
    places = [(y, x) for y in PLACES for x in PLACES]
    order, found = epoch_order(0, 0, len(images)), []
    for turn in range(len(places)):
        for i, number in enumerate(order):
            y, x = places[(i + turn) % len(places)]
            found.append(images[number, y : y + SIDE, x : x + SIDE])
            if len(found) == BATCH:
                yield np.stack(found)
                found = []
    if rest and found:
        yield np.stack(found)


def check_statistics(model: TrainedModel, images: np.ndarray) -> None:
    """Compare the first norm's statistics with those of windows of stored pixels."""
    means, variances = [], []
    for batch in windows_in_turn(images):
        about = model.description
        prepared = (batch[..., None] / 255 - about.mean) / about.std
        features = jax.lax.conv_general_dilated(
            *(jnp.asarray(prepared), jnp.asarray(model.params["conv1"]["kernel"])),
            *((1, 1), "SAME"),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        means.append(np.mean(features, (0, 1, 2)))
        variances.append(np.var(features, (0, 1, 2)))
    norm = model.model_state["norm1"]
    assert norm["mean"].dtype == np.float64
    np.testing.assert_allclose(norm["mean"], np.mean(means, 0), TOLERANCE, TOLERANCE)
    np.testing.assert_allclose(norm["var"], np.mean(variances, 0), TOLERANCE)


def test_statistics_of_averages_are_of_windows_of_stored_pixels(exact: Path):
    with float64(True):
        model = load_model(exact / "run", "latest")
        check_statistics(model, pixels_of(exact))


def test_an_average_has_the_statistics_of_windows(exact: Path, tmp_path: Path):
    words = f"average run run --trust --images 10000 --out {quoted(tmp_path / 'soup')}"
    call(exact, words, **FP64)
    trust.trust(tmp_path / "soup")
    with float64(True):
        check_statistics(load_model(tmp_path / "soup"), pixels_of(exact))


def test_the_training_split_is_evaluated_as_any_other_images(exact: Path):
    """The same images, of the split and of all of the set, have the same metrics."""
    config, train = training_split(exact)
    found = []
    with float64(True):
        model = load_model(exact / "run")
        for split in ("train", "all"):
            subject, source = open_subject(model, config, config.data, split)
            (numbers,) = np.nonzero(np.isin(source.indices, train.indices))
            found.append(Pass(subject=subject)(source.subset(numbers), split).values)
    ours, theirs = found
    assert np.sum(ours["confusion_matrix"]) == len(train) * WHOLE**2
    np.testing.assert_array_equal(ours["confusion_matrix"], theirs["confusion_matrix"])
    np.testing.assert_allclose(ours["loss"], theirs["loss"], TOLERANCE)


@pytest.mark.parametrize("kind", thinned(2, AUGMENT))
def test_first_kernels_are_computed_from_windows(kind: str, tmp_path: Path):
    write_run(tmp_path, kind, steps=1)
    words = f"--config recipe.py --workdir run --model.name {SPREAD}"
    call(tmp_path, f"{words} --optimizer.learning-rate 1e-12")
    trust.trust(tmp_path / "run")
    model = load_model(tmp_path / "run", "latest")
    windows = np.concatenate(list(windows_in_turn(pixels_of(tmp_path), rest=True)))
    images = (windows / 255 - model.description.mean) / model.description.std
    kernel = model.params["conv1"]["kernel"]
    # Means of 150,000 numbers of float32.
    np.testing.assert_allclose(kernel[1:], images.std(), rtol=1e-5)
    np.testing.assert_allclose(kernel[0], images.mean(), rtol=0, atol=1e-5)


@pytest.mark.exhaustive
def test_ranges_of_8_bits_are_of_the_windows_of_stored_pixels(
    here: Path, tmp_path: Path
):
    out = quoted(tmp_path / "q")
    words = f"quantize --workdir run --trust --out {out} --calibration minmax"
    shown = call(here, f"{words} --num-images 2000").stdout
    assert "mean_iou" in shown and "validation images" in shown
    model = load_model(here / "run")
    trust.trust(tmp_path / "q")
    state = by_path(load_model(tmp_path / "q").model_state)
    prepared = (pixels_of(here) / 255 - model.description.mean) / model.description.std
    ends = [float(state[f"conv1/input_range/{end}"]) for end in ("low", "high")]
    np.testing.assert_allclose(
        ends, [min(0, prepared.min()), prepared.max()], rtol=1e-5
    )
    before, after = shown.partition("mean_iou")[2].partition(" on ")[0].split("->")
    assert float(before.strip("\u2502 ")) > 0.75 < float(after)


def test_channels_matter_by_the_loss_of_whole_images(exact: Path, tmp_path: Path):
    """By the change of the loss as kernels grow; windows are cut one by one."""
    words = f"compact --workdir run --trust --flops 0.7 --multiple 1 --images {NUM}"
    call(exact, f"{words} --out {quoted(tmp_path / 'small')}", **FP64)
    assert (tmp_path / "small").exists()
    with float64(True):
        model, (config, train) = load_model(exact / "run"), training_split(exact)
        channels = open_channels(model.description)
        subject, source = open_subject(model, config, config.data, "train")
        found = by_taylor(model, channels, subject, source, BATCH, NUM)
        order = epoch_order(0, 0, len(train))[:NUM]
        images, masks = pixels_of(exact)[order], masks_of(exact, train, order)
        (name,) = (
            n for n, g in channels.groups.items() if ("conv2/kernel", 2) in g.taken
        )
        for channel in (0, 5):
            low, high = (
                losses(scaled(model, channel, 1 + step), images, masks)
                for step in (-STEP, STEP)
            )
            expected = np.mean(((high - low) / (2 * STEP)) ** 2)
            np.testing.assert_allclose(found[name][channel], expected, rtol=1e-5)


def masks_of(folder: Path, train: Source, order: np.ndarray) -> np.ndarray:
    if (folder / "set.npz").exists():
        return np.load(folder / "set.npz")["label"][train.indices[order]]
    names = [name.replace("images", "masks") for name in example_names(train, order)]
    return np.stack([np.asarray(Image.open(folder / "set" / name)) for name in names])


def scaled(model: TrainedModel, channel: int, factor: float) -> TrainedModel:
    """Return a model whose second layer takes a channel times a factor."""
    params = {name: dict(arrays) for name, arrays in model.params.items()}
    kernel = np.array(params["conv2"]["kernel"])
    kernel[:, :, channel] *= factor
    params["conv2"]["kernel"] = kernel
    return dataclasses.replace(model, params=params)


def losses(model: TrainedModel, images: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """Return the cross entropy of each image by the mean probabilities of windows."""
    about = dataclasses.replace(model.description, sliding_size=None)
    net = dataclasses.replace(model, description=about)
    total = np.zeros((*images.shape, 3))
    counts = np.zeros((*images.shape, 1))
    for y in PLACES:
        for x in PLACES:
            part = np.s_[:, y : y + SIDE, x : x + SIDE]
            total[part] += net.predict(images[part][..., None])
            counts[part] += 1
    true = np.take_along_axis(total / counts, masks[..., None].astype(int), -1)
    return -np.log(true).mean((1, 2, 3))
