"""Sources: what they hold, in which order, and every bad input."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from jaxtrain.config import AugmentConfig, DataConfig
from jaxtrain.data import image_statistics
from jaxtrain.data.image_statistics import mean_and_std, statistics
from jaxtrain.data.slices import stratified_split
from jaxtrain.data.sources import Source
from jaxtrain.data.stores import ArrayStore, SyntheticStore, targets_of
from jaxtrain.errors import UserError
from tests.helpers.images import load_images, read_all
from tests.helpers.masked import shapes, write_masks
from tests.helpers.rows import each_row

# --- digits, and holding out ---------------------------------------------------------


def test_digits_are_scikit_learns():
    splits = load_images(validation_fraction=0.0)
    assert (len(splits.train), splits.validation, len(splits.test)) == (1437, None, 360)
    assert splits.train.image_shape == (8, 8, 1)
    assert splits.train.facts["num_classes"] == 10
    parts = [splits.train, splits.test]
    indices = np.concatenate([part.indices for part in parts])  # type: ignore[union-attr]
    assert (np.sort(indices) == np.arange(1797)).all()
    data = load_digits()
    for part in parts:
        batch = read_all(part)
        assert (batch["target"] == data.target[part.indices]).all()  # type: ignore
        pixels = data.images[part.indices][..., None] * 255 / 16  # type: ignore
        assert batch["image"].dtype == np.uint8
        assert np.abs(batch["image"] - pixels).max() <= 0.5
        shares = np.bincount(part.strata()) / np.bincount(data.target)  # type: ignore
        assert np.abs(shares - len(part) / 1797).max() < 1 / 150


def test_a_store_may_call_something_else_its_targets():
    class Own(SyntheticStore):
        targets = np.arange(5)

    assert targets_of(Own((4, 4, 1), 2), np.arange(2)) is None


def test_held_out_examples_are_a_seeded_stratified_part_of_the_training_split():
    whole = load_images(validation_fraction=0.0).train.indices  # type: ignore
    splits = [load_images(seed=seed, validation_fraction=0.2) for seed in (1, 1, 2)]
    kept = [split.train.indices for split in splits]  # type: ignore
    held = [split.validation.indices for split in splits]  # type: ignore
    assert (held[0] == held[1]).all()
    assert len(np.intersect1d(held[0], held[2])) < 120
    assert len(held[0]) == round(0.2 * 1437)
    assert (np.sort(np.concatenate([kept[0], held[0]])) == whole).all()


@each_row("fraction", [0.001, 0.1, 1 / 3, 0.5, 0.99])
@each_row("counts", [(50,) * 10, (1000, 10, 1), (3, 3, 3), (7,)])
def test_stratified_split(counts: tuple[int, ...], fraction: float):
    labels = np.random.default_rng(0).permutation(np.repeat(range(len(counts)), counts))
    kept, held_out = stratified_split(labels, fraction, seed=5)
    assert (np.diff(kept) > 0).all() and (np.diff(held_out) > 0).all()
    assert (np.sort(np.r_[kept, held_out]) == np.arange(len(labels))).all()
    assert len(held_out) == round(fraction * len(labels))
    of_class = np.bincount(labels[held_out], minlength=len(counts))
    assert (np.abs(of_class - fraction * np.array(counts)) < 1).all()


def test_the_choice_of_a_seed_stays():
    # Recorded; a run that is resumed under another NumPy must not mix its splits.
    labels = np.arange(1000) % 7
    _, held_out = stratified_split(labels, 0.01, seed=3)
    assert held_out.tolist() == [43, 107, 333, 353, 420, 475, 618, 817, 883, 889]


# --- synthetic -----------------------------------------------------------------------


def test_synthetic_sizes():
    splits = load_images(source="synthetic:5x7x3/4", validation_fraction=0.0)
    assert (len(splits.train), len(splits.test)) == (2048, 512)
    assert splits.train.image_shape == (5, 7, 3)
    assert splits.train.facts["num_classes"] == 4
    splits = load_images(source="synthetic:5x7x3/4/100")
    assert splits.validation is not None
    assert [len(s) for s in (splits.train, splits.validation, splits.test)] == [
        90,
        10,
        25,
    ]
    batch = read_all(splits.train)
    assert batch["image"].shape == (90, 5, 7, 3)
    assert (batch["image"].dtype, batch["target"].dtype) == (np.uint8, np.int32)


def test_synthetic_images_are_functions_of_the_index():
    fields: dict[str, Any] = {
        "source": "synthetic:9x9x1/3/64",
        "validation_fraction": 0.0,
    }
    first, second = load_images(**fields), load_images(seed=9, **fields)
    whole = read_all(first.train)
    assert (read_all(second.train)["image"] == whole["image"]).all()
    assert len(np.unique(whole["image"], axis=0)) == 64
    test = read_all(first.test)["image"]
    assert not (test[:, None] == whole["image"][None]).all((2, 3, 4)).any()


@pytest.mark.parametrize("shape", ["8x8x1", "32x32x3"])
def test_synthetic_classes_can_be_learned(shape: str):
    splits = load_images(source=f"synthetic:{shape}/10/500", validation_fraction=0.0)
    train, test = read_all(splits.train), read_all(splits.test)
    means = np.stack(
        [train["image"][train["target"] == c].mean(axis=0) for c in range(10)]
    )
    distance = ((test["image"][:, None] - means[None]) ** 2).sum((2, 3, 4))
    assert (distance.argmin(axis=1) == test["target"]).mean() > 0.9


# --- bad inputs ----------------------------------------------------------------------


@each_row(
    ("fields", "message"),
    [
        ({"source": "digit"}, "expected digits, .*; perhaps you meant digits"),
        ({"source": "imagenet"}, "expected digits, .*tfds:NAME, synthetic:HxWxC"),
        ({"train_split": "train[50%]"}, r"of digits: 'train\[50%\]' is not a slice"),
        ({"test_split": "validation"}, "of digits: .* expected train, test, or"),
        ({"source": "synthetic:8x8/2"}, "such as synthetic:32x32x3/10/2048"),
        (
            {"source": "synthetic:8x8x1/2", "train_split": "any"},
            "the split 'any' does not exist; expected train, test",
        ),
        ({"source": "synthetic:8x8x2/2", "image_size": 4}, "images with 2 channels"),
        ({"validation_fraction": 1e-4}, "holds out none of the 1437 examples"),
    ],
)
def test_bad_input(fields: dict, message: str):
    with pytest.raises(UserError, match=message):
        load_images(**fields)


# --- statistics ----------------------------------------------------------------------


def test_statistics_of_large_sets_use_evenly_spaced_examples(
    monkeypatch: pytest.MonkeyPatch,
):
    source = load_images(source="synthetic:12x10x3/4/300").train
    monkeypatch.setattr(image_statistics, "STATISTICS_BYTES", 1000)
    monkeypatch.setattr(image_statistics, "CHUNK_BYTES", 1000)
    mean, _ = statistics(source, max_examples=27)
    pixels = source.read(np.arange(0, 270, 10))["image"] / 255
    np.testing.assert_allclose(mean, pixels.mean((0, 1, 2)), rtol=1e-12)
    assert statistics(source, max_examples=10_000) == statistics(
        source, max_examples=270
    )


@pytest.mark.plugins
@each_row("kind", ["arrays", "masks"])
def test_statistics_are_of_images_as_evaluations_see_them(kind: str, tmp_path: Path):
    """Of windows that the step cuts, and of those that the host does."""
    augment = AugmentConfig(random_resized_crop=True)
    if kind == "masks":
        write_masks(tmp_path, {"train": 12, "test": 4}, side=40)
        source, augment = f"masks:{tmp_path}", AugmentConfig(scale_jitter=(0.5, 2.0))
    else:
        images, masks = shapes(16, 40)
        np.savez(tmp_path / "set.npz", image=images, label=masks)
        source = f"arrays:{tmp_path / 'set.npz'}"
    how: dict[str, Any] = {"source": source, "crop_mode": "squash", "channels": 1}
    for whole in (40, 24):  # As stored, and smaller.
        size = {"image_size": 16, "sliding_size": whole}
        splits = load_images(**how, **size, augment=augment)
        plain = load_images(**how, image_size=whole).train
        found = mean_and_std(DataConfig(), splits, splits.train)
        assert found == statistics(plain)
        windows = load_images(**how, image_size=whole, augment=augment)
        assert found == mean_and_std(DataConfig(), windows, windows.train)


def test_a_constant_channel_has_a_standard_deviation():
    store = ArrayStore(np.full((5, 4, 4, 1), 51, np.uint8), np.zeros(5, np.int32), {})
    mean, std = statistics(Source(store, np.arange(5), (4, 4, 1), 16))
    np.testing.assert_allclose(mean, [0.2])
    assert std == (1 / 255,)
