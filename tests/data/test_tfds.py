"""Prepared TFDS sets: what is read, without TensorFlow, and every bad input."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxtrain import extras
from jaxtrain.config import Config, DataConfig, SGDConfig
from jaxtrain.errors import UserError
from jaxtrain.trainer.setup import build_setup
from tests.helpers.images import (
    encode,
    grey,
    load_images,
    read_all,
    tiny_splits,
    write_tfds,
)
from tests.helpers.rows import each_row
from tests.helpers.words import quoted


@pytest.mark.slow
def test_fashion_mnist_is_what_tfds_decodes(fashion_mnist_dir: str):
    import tensorflow_datasets as tfds

    splits = load_images(source="tfds:fashion_mnist", data_dir=fashion_mnist_dir)
    assert splits.validation is not None
    sizes = [len(s) for s in (splits.train, splits.validation, splits.test)]
    assert sizes == [54_000, 6_000, 10_000]
    assert (np.bincount(splits.validation.strata()) == 600).all()
    assert (np.bincount(splits.test.strata()) == 1000).all()
    builder: Any = tfds.builder("fashion_mnist", data_dir=fashion_mnist_dir)
    reference = builder.as_data_source("test")
    indices = np.array([9_999, 3, 3, 0, 5_000])
    batch = splits.test.read(indices)
    for row, index in enumerate(indices):
        expected = reference[int(index)]
        assert (batch["image"][row] == expected["image"]).all()
        assert batch["target"][row] == expected["label"]


@pytest.mark.slow
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
    fields["validation_split"] = "train[:2]"
    given = load_images(train_split="train[2:]", **fields).validation
    assert given is not None and len(given) == 2
    with pytest.raises(UserError, match=r"share 1 examples: give disjoint splits"):
        load_images(train_split="train[1:]", **fields)
    del fields["validation_split"]
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
        folder = str(tmp_path) if source.startswith("tfds:") else None
        train = load_images(source=source, data_dir=folder).train
        indices = np.array([7, 0, 7, 3], np.int32)
        batch = train.read(indices)
        for row, index in enumerate(indices):
            alone = train.read(np.array([index]))
            assert (alone["image"][0] == batch["image"][row]).all()
            assert alone["target"][0] == batch["target"][row]
        assert (batch["target"] == train.strata()[indices]).all()
        assert train.strata().dtype == np.int32
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


def test_incomplete_files_are_told_when_the_set_is_opened(tmp_path: Path):
    write_tfds(tmp_path, tiny_splits())
    (file,) = tmp_path.glob("tiny/*/tiny-test*")
    whole = file.read_bytes()
    half = len(whole) // 2
    for damaged in (whole[:half], whole[:100] + b"?" + whole[101:], None):
        file.unlink(missing_ok=True)
        if damaged is not None:
            file.write_bytes(damaged)
        with pytest.raises(UserError, match="'test' of tfds:tiny: the files are"):
            load_images(source="tfds:tiny", data_dir=str(tmp_path))


@each_row(
    ("source", "message"),
    [
        ("tfds:fashon_mnist", "perhaps you meant fashion_mnist"),
        ("tfds:", "datasets/catalog"),
        ("tfds:no such name!", "datasets/catalog"),
    ],
)
def test_unknown_names(source: str, message: str, tmp_path: Path):
    with pytest.raises(UserError, match=message):
        load_images(source=source, data_dir=str(tmp_path))


@pytest.mark.plugins
def test_a_set_that_is_not_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(UserError) as caught:
        load_images(source="tfds:mnist", data_dir=str(tmp_path))
    data_dir = quoted(tmp_path)
    command = f"python main.py data --prepare tfds:mnist --data-dir {data_dir}\n"
    assert command in str(caught.value)
    assert extras.install("tfds-prepare") in str(caught.value)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    with pytest.raises(UserError) as caught:
        load_images(source="tfds:mnist")
    assert "python main.py data --prepare tfds:mnist\n" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_sets_without_images_and_labels(tmp_path: Path):
    write_tfds(tmp_path / "a", tiny_splits(), label="target")
    with pytest.raises(UserError, match="has the features image, target: expected"):
        load_images(source="tfds:tiny", data_dir=str(tmp_path / "a"))
    write_tfds(tmp_path / "b", tiny_splits(test=[(grey(1), -1)]))
    data = DataConfig(source="tfds:tiny", data_dir=str(tmp_path / "b"), batch_size=1)
    with pytest.raises(UserError, match="'test' of tfds:tiny has no labels"):
        build_setup(Config(data=data, optimizer=SGDConfig(learning_rate=0.1)))


PAYLOAD = {"type": "tfds_payload.Feature", "content": {}}
FEATURES = "tensorflow_datasets.core.features"
TFDS_DICT = f"{FEATURES}.features_dict.FeaturesDict"
# A feature that names code, as the versions of TFDS write it.
NAMING_CODE = {
    "proto": {"pythonClassName": "tfds_payload.Feature"},
    "legacy": {"type": TFDS_DICT, "content": {"x": PAYLOAD}},
    "JSON in JSON": {
        "pythonClassName": TFDS_DICT,
        "jsonFeature": {"json": " " + json.dumps({"x": PAYLOAD})},
    },
    "sequence": {
        "pythonClassName": f"{FEATURES}.sequence_feature.Sequence",
        "sequence": {"feature": {"pythonClassName": "tfds_payload.Feature"}},
    },
}


@each_row("file", ["features.json", "dataset_info.json"])
@each_row("form", NAMING_CODE)
def test_set_that_names_code_is_refused(
    form: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """TFDS would import the module of a feature that it does not know."""
    write_tfds(tmp_path, tiny_splits())
    path = tmp_path / "tiny" / "1.0.0" / file
    described = json.loads(path.read_text())
    if file == "features.json":
        described = NAMING_CODE[form]
    else:
        described["features"] = NAMING_CODE[form]
    path.write_text(json.dumps(described))
    (tmp_path / "tfds_payload.py").write_text("open('ran', 'w').close()")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        UserError, match=r"the custom feature class tfds_payload\.Feature"
    ):
        load_images(source="tfds:tiny", data_dir=str(tmp_path))
    assert not Path("ran").exists()


def test_description_of_a_set_is_a_regular_file(tmp_path: Path):
    write_tfds(tmp_path, tiny_splits())
    path = tmp_path / "tiny" / "1.0.0" / "features.json"
    path.write_text("{")
    with pytest.raises(UserError, match=r"features\.json cannot be read"):
        load_images(source="tfds:tiny", data_dir=str(tmp_path))
    path.write_text('{"a":' * 900 + "1" + "}" * 900)
    with pytest.raises(UserError, match="nested more than 64 levels"):
        load_images(source="tfds:tiny", data_dir=str(tmp_path))
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UserError, match="not a regular file"):
        load_images(source="tfds:tiny", data_dir=str(tmp_path))
