"""Sources: what they hold, in which order, shape and size, and every bad input."""

import io
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from array_record.python.array_record_module import ArrayRecordWriter
from PIL import Image
from sklearn.datasets import load_digits
from tensorflow_datasets.proto import tf_example_pb2

from jaxtrain.config import DataConfig
from jaxtrain.data import images, sources
from jaxtrain.data.sources import ImageSource, Splits, load, statistics
from jaxtrain.errors import UserError

Example = tuple[bytes, int]


def load_images(seed: int = 0, **fields) -> Splits:
    return load(DataConfig(**fields), seed)


def read_all(source: sources.Source, **kwargs) -> dict[str, np.ndarray]:
    return source.read(np.arange(len(source)), **kwargs)


def encode(pixels: np.ndarray, format: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format)
    return buffer.getvalue()


def grey(value: int, height: int = 6, width: int = 4) -> bytes:
    return encode(np.full((height, width), value, np.uint8))


def write_tfds(
    root: Path,
    splits: dict[str, Sequence[Example]],
    shape: Sequence[int] = (6, 4, 1),
    label: str = "label",
) -> None:
    """Write the prepared set `tiny`, as TFDS lays it out; -1 is an unknown size."""
    folder = root / "tiny" / "1.0.0"
    folder.mkdir(parents=True)
    kind = "tensorflow_datasets.core.features"
    features = {
        "image": {
            "pythonClassName": f"{kind}.image_feature.Image",
            "image": {
                "dtype": "uint8",
                "shape": {"dimensions": [str(n) for n in shape]},
            },
        },
        label: {
            "pythonClassName": f"{kind}.class_label_feature.ClassLabel",
            "classLabel": {"numClasses": "3"},
        },
    }
    (folder / "features.json").write_text(
        json.dumps(
            {
                "pythonClassName": f"{kind}.features_dict.FeaturesDict",
                "featuresDict": {"features": features},
            }
        )
    )
    infos = []
    for name, examples in splits.items():
        path = folder / f"tiny-{name}.array_record-00000-of-00001"
        writer = ArrayRecordWriter(str(path), "group_size:1")
        for data, number in examples:
            example = tf_example_pb2.Example()  # pyright: ignore
            example.features.feature["image"].bytes_list.value.append(data)
            example.features.feature[label].int64_list.value.append(number)
            writer.write(example.SerializeToString())
        writer.close()
        template = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
        infos.append(
            {
                "name": name,
                "shardLengths": [str(len(examples))],
                "filepathTemplate": template,
            }
        )
    info = {
        "name": "tiny",
        "version": "1.0.0",
        "fileFormat": "array_record",
        "splits": infos,
    }
    (folder / "dataset_info.json").write_text(json.dumps(info))


def tiny_splits(**more: Sequence[Example]) -> dict[str, Sequence[Example]]:
    train = [(grey(10 * i), i % 3) for i in range(12)]
    return {"train": train, "test": [(grey(200), 2), (grey(201), 1)], **more}


# --- digits, and holding out ---------------------------------------------------------


def test_digits_are_scikit_learns():
    splits = load_images(validation_fraction=0.0)
    assert (len(splits.train), splits.validation, len(splits.test)) == (1437, None, 360)
    assert splits.train.image_shape == (8, 8, 1)
    assert splits.train.num_classes == 10
    parts = [splits.train, splits.test]
    indices = np.concatenate([part.indices for part in parts])  # type: ignore[union-attr]
    assert (np.sort(indices) == np.arange(1797)).all()
    data = load_digits()
    for part in parts:
        assert isinstance(part, ImageSource)
        batch = read_all(part)
        assert (batch["label"] == data.target[part.indices]).all()  # type: ignore
        pixels = data.images[part.indices][..., None] * 255 / 16  # type: ignore
        assert batch["image"].dtype == np.uint8
        assert np.abs(batch["image"] - pixels).max() <= 0.5
        shares = np.bincount(part.labels()) / np.bincount(data.target)  # type: ignore
        assert np.abs(shares - len(part) / 1797).max() < 1 / 150


def test_the_test_digits_do_not_depend_on_the_seed():
    first, second = load_images(seed=1), load_images(seed=2)
    assert (read_all(first.test)["image"] == read_all(second.test)["image"]).all()


def test_held_out_examples_are_a_seeded_stratified_part_of_the_training_split():
    whole = load_images(validation_fraction=0.0).train.indices  # type: ignore
    splits = [load_images(seed=seed, validation_fraction=0.2) for seed in (1, 1, 2)]
    kept = [split.train.indices for split in splits]  # type: ignore
    held = [split.validation.indices for split in splits]  # type: ignore
    assert (held[0] == held[1]).all()
    assert len(np.intersect1d(held[0], held[2])) < 120
    assert len(held[0]) == round(0.2 * 1437)
    assert (np.sort(np.concatenate([kept[0], held[0]])) == whole).all()


@pytest.mark.parametrize("fraction", [0.001, 0.1, 1 / 3, 0.5, 0.99])
@pytest.mark.parametrize("counts", [(50,) * 10, (1000, 10, 1), (3, 3, 3), (7,)])
def test_stratified_split(counts: tuple[int, ...], fraction: float):
    labels = np.random.default_rng(0).permutation(np.repeat(range(len(counts)), counts))
    kept, held_out = sources.stratified_split(labels, fraction, seed=5)
    assert (np.diff(kept) > 0).all() and (np.diff(held_out) > 0).all()
    assert (np.sort(np.r_[kept, held_out]) == np.arange(len(labels))).all()
    assert len(held_out) == round(fraction * len(labels))
    of_class = np.bincount(labels[held_out], minlength=len(counts))
    assert (np.abs(of_class - fraction * np.array(counts)) < 1).all()


def test_the_choice_of_a_seed_stays():
    # Recorded; a run that is resumed under another NumPy must not mix its splits.
    labels = np.arange(1000) % 7
    _, held_out = sources.stratified_split(labels, 0.01, seed=3)
    assert held_out.tolist() == [43, 107, 333, 353, 420, 475, 618, 817, 883, 889]


# --- synthetic -----------------------------------------------------------------------


def test_synthetic_sizes():
    splits = load_images(source="synthetic:5x7x3/4", validation_fraction=0.0)
    assert (len(splits.train), len(splits.test)) == (2048, 512)
    assert splits.train.image_shape == (5, 7, 3)
    assert splits.train.num_classes == 4
    splits = load_images(source="synthetic:5x7x3/4/100")
    assert splits.validation is not None
    assert [len(s) for s in (splits.train, splits.validation, splits.test)] == [
        90,
        10,
        25,
    ]
    batch = read_all(splits.train)
    assert batch["image"].shape == (90, 5, 7, 3)
    assert (batch["image"].dtype, batch["label"].dtype) == (np.uint8, np.int32)


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
        [train["image"][train["label"] == c].mean(axis=0) for c in range(10)]
    )
    distance = ((test["image"][:, None] - means[None]) ** 2).sum((2, 3, 4))
    assert (distance.argmin(axis=1) == test["label"]).mean() > 0.9


# --- TFDS ----------------------------------------------------------------------------


def test_fashion_mnist_is_what_tfds_decodes(fashion_mnist_dir: str):
    import tensorflow_datasets as tfds

    splits = load_images(source="tfds:fashion_mnist", data_dir=fashion_mnist_dir)
    assert splits.validation is not None
    sizes = [len(s) for s in (splits.train, splits.validation, splits.test)]
    assert sizes == [54_000, 6_000, 10_000]
    assert (np.bincount(splits.validation.labels()) == 600).all()
    assert (np.bincount(splits.test.labels()) == 1000).all()
    builder: Any = tfds.builder("fashion_mnist", data_dir=fashion_mnist_dir)
    reference = builder.as_data_source("test")
    indices = np.array([9_999, 3, 3, 0, 5_000])
    batch = splits.test.read(indices)
    for row, index in enumerate(indices):
        expected = reference[int(index)]
        assert (batch["image"][row] == expected["image"]).all()
        assert batch["label"][row] == expected["label"]


def test_reading_needs_no_tensorflow_and_is_silent(fashion_mnist_dir: str):
    code = (
        "import sys\n"
        "import numpy as np\n"
        "from jaxtrain.config import DataConfig\n"
        "from jaxtrain.data.sources import load\n"
        "splits = load(DataConfig(source='tfds:fashion_mnist'), 0)\n"
        "splits.train.read(np.arange(10))\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "TFDS_DATA_DIR": fashion_mnist_dir},
        capture_output=True,
        text=True,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_slices_and_own_validation_split(tmp_path: Path):
    write_tfds(tmp_path, tiny_splits(validation=[(grey(99), 0)] * 3))
    fields: dict[str, Any] = {"source": "tfds:tiny", "data_dir": str(tmp_path)}
    splits = load_images(train_split="train[:50%]+train[-1:]", **fields)
    assert [read_all(splits.train)["image"][i, 0, 0, 0] for i in (0, 5, 6)] == [
        0,
        50,
        110,
    ]
    assert splits.validation is not None and len(splits.validation) == 3
    given = load_images(validation_split="train[:2]", **fields).validation
    assert given is not None and len(given) == 2
    # Where validation is what is tested on, examples are held out.
    splits = load_images(
        test_split="validation[1:]", validation_fraction=0.25, **fields
    )
    assert splits.validation is not None
    assert [len(s) for s in (splits.train, splits.validation, splits.test)] == [9, 3, 2]
    no_fraction = load_images(
        test_split="validation", validation_fraction=0.0, **fields
    )
    assert no_fraction.validation is None


def test_rows_come_in_the_order_asked_for(tmp_path: Path):
    write_tfds(tmp_path, tiny_splits())
    for source in ("tfds:tiny", "digits", "synthetic:6x4x1/3/12"):
        train = load_images(source=source, data_dir=str(tmp_path)).train
        indices = np.array([7, 0, 7, 3], np.int32)
        batch = train.read(indices)
        for row, index in enumerate(indices):
            alone = train.read(np.array([index]))
            assert (alone["image"][0] == batch["image"][row]).all()
            assert alone["label"][0] == batch["label"][row]
        assert (batch["label"] == train.labels()[indices]).all()
        assert train.labels().dtype == np.int32
        copy = pickle.loads(pickle.dumps(train))
        assert (copy.read(indices)["image"] == batch["image"]).all()


def test_grey_files_of_a_colour_set_and_sizes_that_differ(tmp_path: Path):
    colour = np.zeros((40, 20, 3), np.uint8)
    colour[..., 1] = 200
    train = [(encode(np.full((30, 60), 80, np.uint8), "JPEG"), 0), (encode(colour), 1)]
    write_tfds(tmp_path, {"train": train, "test": train}, shape=(-1, -1, 3))
    fields: dict[str, Any] = {
        "source": "tfds:tiny",
        "data_dir": str(tmp_path),
        "validation_fraction": 0.0,
    }
    with pytest.raises(UserError, match=r"differ in size: set data\.image_size"):
        load_images(**fields)
    source = load_images(image_size=16, **fields).train
    assert source.image_shape == (16, 16, 3)
    batch = read_all(source)["image"]
    assert batch.shape == (2, 16, 16, 3)
    assert (batch[0] == 80).all()
    assert (batch[1] == [0, 200, 0]).all()


def test_damaged_image_is_named(tmp_path: Path):
    train = [(grey(1), 0), (grey(2)[:40], 1), (b"no image", 1), (grey(4), 2)]
    write_tfds(tmp_path, {"train": train, "test": train})
    source = load_images(
        source="tfds:tiny", data_dir=str(tmp_path), validation_fraction=0.0
    ).train
    for index in (1, 2):
        message = f"split 'train' of tfds:tiny: image {index} is damaged"
        with pytest.raises(UserError, match=message):
            source.read(np.array([0, index]))


def test_incomplete_files_are_told_when_the_set_is_opened(tmp_path: Path):
    write_tfds(tmp_path, tiny_splits())
    (file,) = tmp_path.glob("tiny/*/tiny-test*")
    whole = file.read_bytes()
    half = len(whole) // 2
    for damaged in (whole[:half], whole[:100] + b"?" + whole[101:], None):
        file.unlink(missing_ok=True)
        if damaged is not None:
            file.write_bytes(damaged)
        with pytest.raises(UserError, match="'test' of tfds:tiny: its files are"):
            load_images(source="tfds:tiny", data_dir=str(tmp_path))


# --- bad inputs ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"source": "digit"}, "expected digits, .*; perhaps you meant digits"),
        ({"source": "imagenet"}, "expected digits, tfds:NAME or synthetic"),
        ({"source": "digits:5"}, "expected digits"),
        ({"train_split": "train[:50%]"}, "digits has the splits train, test"),
        ({"test_split": "validation"}, "digits has the splits train, test"),
        ({"validation_split": "tset"}, "digits has the splits train, test"),
        ({"source": "synthetic"}, "such as synthetic:32x32x3/10/2048"),
        ({"source": "synthetic:8x8/2"}, "such as synthetic:32x32x3/10/2048"),
        ({"source": "synthetic:8x0x1/2"}, "such as synthetic:32x32x3/10/2048"),
        ({"source": "synthetic:8x8x1/2/0"}, "such as synthetic:32x32x3/10/2048"),
        ({"source": "synthetic:8x8x1/2", "train_split": "all"}, "splits train, test"),
        ({"source": "synthetic:8x8x2/2", "image_size": 4}, "images of 2 channels"),
        ({"source": "synthetic:8x8x2/2", "channels": 1}, "images of 2 channels"),
        ({"validation_fraction": 1e-4}, "of 1437 examples is none"),
        ({"source": "tfds:fashon_mnist"}, "perhaps you meant fashion_mnist"),
        ({"source": "tfds:"}, "datasets/catalog"),
        ({"source": "tfds:no such name!"}, "datasets/catalog"),
        ({"source": "tfds:kaggle:mnist"}, "no data set 'kaggle'"),
    ],
)
def test_bad_input(fields: dict, message: str, tmp_path: Path):
    with pytest.raises(UserError, match=message):
        load_images(data_dir=str(tmp_path), **fields)


def test_a_set_that_is_not_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(UserError) as caught:
        load_images(source="tfds:mnist", data_dir=str(tmp_path))
    command = f"python main.py data --prepare tfds:mnist --data-dir {tmp_path}\n"
    assert command in str(caught.value)
    assert "pip install -e '.[tfds-prepare]'" in str(caught.value)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    with pytest.raises(UserError) as caught:
        load_images(source="tfds:mnist")
    assert "python main.py data --prepare tfds:mnist\n" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("tset", "Unknown split 'tset'; expected train, test, or slices"),
        ("train[:", r"Error parsing split 'train\[:'; expected train, test"),
        ("train[99:]", "incompatible with 12 examples; expected train, test"),
        ("train[5:5]", "is empty"),
    ],
)
def test_bad_tfds_splits(split: str, message: str, tmp_path: Path):
    write_tfds(tmp_path, tiny_splits())
    with pytest.raises(UserError, match=message):
        load_images(source="tfds:tiny", data_dir=str(tmp_path), train_split=split)


def test_sets_without_images_and_labels(tmp_path: Path):
    write_tfds(tmp_path / "a", tiny_splits(), label="target")
    with pytest.raises(UserError, match="has the features image, target: needed"):
        load_images(source="tfds:tiny", data_dir=str(tmp_path / "a"))
    write_tfds(tmp_path / "b", tiny_splits(test=[(grey(1), -1)]))
    with pytest.raises(UserError, match="'test' of tfds:tiny has no labels"):
        load_images(source="tfds:tiny", data_dir=str(tmp_path / "b"))


# --- conversion ----------------------------------------------------------------------


def bilinear(image: np.ndarray, size: int) -> np.ndarray:
    """Enlarge a square image (side, side): half-pixel centres, edges repeated."""
    side = len(image)
    place = np.clip((np.arange(size) + 0.5) * side / size - 0.5, 0, side - 1)
    low = np.minimum(place.astype(int), side - 2)
    weights = np.zeros((size, side))
    weights[np.arange(size), low] = 1 - (place - low)
    weights[np.arange(size), low + 1] = place - low
    return weights @ image @ weights.T


def test_images_of_the_right_size_are_not_touched():
    image = np.random.default_rng(0).integers(0, 256, (28, 28, 3), dtype=np.uint8)
    assert images.centre_fit(image, 28) is image
    stored = load_images(source="synthetic:8x8x3/2/16").train
    same = load_images(source="synthetic:8x8x3/2/16", image_size=8, channels=3).train
    assert (read_all(stored)["image"] == read_all(same)["image"]).all()


def test_smaller_images_are_enlarged_whole():
    image = np.random.default_rng(0).integers(0, 256, (28, 28, 1), dtype=np.uint8)
    larger = images.centre_fit(image, 32)
    assert larger.shape == (32, 32, 1)
    assert np.abs(larger[..., 0] - bilinear(image[..., 0], 32)).max() <= 1
    wide = np.concatenate([image[:, :6] // 2, image, image[:, :6] // 2], axis=1)
    # At its border the square takes in a little of what lies beyond.
    assert (images.centre_fit(wide, 32)[:, 1:-1] == larger[:, 1:-1]).all()


def test_larger_images_lose_an_eighth_and_are_antialiased():
    image = np.random.default_rng(0).integers(0, 256, (40, 32, 3), dtype=np.uint8)
    assert (images.centre_fit(image, 28) == image[6:34, 2:30]).all()
    # A ramp of 256 columns: the centred 7/8 of it, averaged over 8 columns each.
    ramp = np.broadcast_to(np.arange(256, dtype=np.uint8)[None, :, None], (256, 256, 1))
    smaller = images.centre_fit(ramp, 28)
    expected = 16 + (np.arange(28) + 0.5) * 8 - 0.5
    assert np.abs(smaller[..., 0] - expected).max() <= 1
    # Stripes of one column each turn to their mean, where sampling would alias.
    stripes = np.broadcast_to(
        np.array([0, 200] * 128, np.uint8)[None, :, None], (256, 256, 1)
    )
    assert np.abs(images.centre_fit(stripes, 28).astype(int) - 100).max() <= 2


def test_channels():
    grey_image = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1)
    colour = images.to_channels(grey_image, 3)
    assert (colour == grey_image).all() and colour.shape == (1, 16, 16, 3)
    assert (images.to_channels(colour, 1) == grey_image).all()
    pixels = np.random.default_rng(0).integers(0, 256, (2, 50, 50, 3), dtype=np.uint8)
    luminance = images.to_channels(pixels, 1)[..., 0]
    exact = pixels @ np.array([0.299, 0.587, 0.114])
    assert np.abs(luminance - exact).max() <= 0.51
    for image, converted in zip(pixels, luminance, strict=True):
        assert (np.asarray(Image.fromarray(image).convert("L")) == converted).all()
    source = load_images(channels=3, image_size=10).train
    assert (
        read_all(source)["image"].shape
        == (1293, 10, 10, 3)
        == (1293, *source.image_shape)
    )


def test_random_windows_have_the_area_and_aspect_of_the_inception_crop():
    height, width = 300, 400
    windows = np.array([images.random_window(height, width, (i,)) for i in range(4000)])
    left, top, right, bottom = windows.T
    w, h = right - left, bottom - top
    assert left.min() == 0 == top.min()
    assert right.max() == width and bottom.max() == height
    area = w * h / (height * width)
    assert 0.078 < area.min() < 0.09 and area.max() > 0.9
    assert 0.73 < (w / h).min() < 0.77 and 1.3 < (w / h).max() < 1.36
    # Small windows always fit: their areas and log aspects are uniform.
    small = area < 0.5
    assert abs(area[small].mean() - 0.29) < 0.01
    assert abs(np.log(w / h)[small].mean()) < 0.02
    place = (left / np.maximum(width - w, 1))[small]
    assert (
        np.abs(np.quantile(place, [0.25, 0.5, 0.75]) - [0.25, 0.5, 0.75]).max() < 0.04
    )


def test_windows_of_extreme_images_are_centred():
    assert images.random_window(1000, 6, (1,)) == (0, 496, 6, 504)
    assert images.random_window(6, 1000, (1,)) == (496, 0, 504, 6)


def test_random_crops_are_functions_of_seed_and_index():
    source = load_images(source="synthetic:40x30x3/2/64", image_size=16).train
    whole = read_all(source, crop_seed=(3, 1))["image"]
    assert whole.shape == (58, 16, 16, 3)
    indices = np.array([9, 50, 9, 2])
    part = source.read(indices, crop_seed=(3, 1))["image"]
    assert (part == whole[indices]).all()
    for other_seed in ((3, 2), (4, 1)):
        other = read_all(source, crop_seed=other_seed)["image"]
        assert not (other == whole).all((1, 2, 3)).any()
    stored = load_images(source="synthetic:40x30x3/2/64").train.read(indices)["image"]
    left, top, right, bottom = images.random_window(40, 30, (3, 1, 9))
    window = Image.fromarray(stored[0][top:bottom, left:right])
    assert (
        np.asarray(window.resize((16, 16), Image.Resampling.BILINEAR)) == part[0]
    ).all()


# --- statistics ----------------------------------------------------------------------


def test_statistics():
    source = load_images(source="synthetic:12x10x3/4/300").train
    pixels = read_all(source)["image"] / 255
    mean, std = statistics(source)
    np.testing.assert_allclose(mean, pixels.mean((0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(std, pixels.std((0, 1, 2)), rtol=1e-9)


def test_statistics_of_large_sets_use_evenly_spaced_examples(
    monkeypatch: pytest.MonkeyPatch,
):
    source = load_images(source="synthetic:12x10x3/4/300").train
    monkeypatch.setattr(sources, "STATISTICS_BYTES", 1000)
    monkeypatch.setattr(sources, "CHUNK_BYTES", 1000)
    mean, _ = statistics(source, max_examples=27)
    pixels = source.read(np.arange(0, 270, 10))["image"] / 255
    np.testing.assert_allclose(mean, pixels.mean((0, 1, 2)), rtol=1e-12)
    assert statistics(source, max_examples=10_000) == statistics(
        source, max_examples=270
    )


def test_a_constant_channel_has_a_standard_deviation():
    store = sources.ArrayStore(
        np.full((5, 4, 4, 1), 51, np.uint8), np.zeros(5, np.int32), 2
    )
    mean, std = statistics(ImageSource(store, np.arange(5), (4, 4, 1)))
    np.testing.assert_allclose(mean, [0.2])
    assert std == (1 / 255,)
