"""Sets of the library `datasets`: what is on this machine, and nothing else."""

import os
import pickle
import sys
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from datasets import config
from huggingface_hub import constants

from jaxtrain.config import DataConfig
from jaxtrain.data.hf import HfStore, open_hf
from jaxtrain.data.slices import SplitRanges
from jaxtrain.errors import UserError
from tests.helpers.images import grey, load_images, read_all
from tests.helpers.rows import each_row

NAMES = ["cat", "dog"]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "HF_DATASETS_CACHE", tmp_path / "cache")


def rows(start: int, num: int, **features: Any) -> datasets.Dataset:
    """Return grey images of the values from `start` on, in two classes."""
    return datasets.Dataset.from_dict(
        {
            "image": [{"bytes": grey(start + i), "path": None} for i in range(num)],
            "label": [i % 2 for i in range(num)],
        },
        features=datasets.Features(
            {
                "image": datasets.Image(),
                "label": datasets.ClassLabel(names=NAMES),
                **features,
            }
        ),
    )


def save(folder: Path, **splits: datasets.Dataset) -> None:
    datasets.DatasetDict(**splits).save_to_disk(folder)


def test_a_saved_set(tmp_path: Path):
    splits = {"train": rows(0, 6), "valid": rows(50, 2), "test": rows(100, 3)}
    save(tmp_path / "set", **splits)
    found = load_images(source=f"hf:{tmp_path}/set", image_size=4, channels=1)
    assert found.validation is not None
    for source, start, num in (
        (found.train, 0, 6),
        (found.validation, 50, 2),
        (found.test, 100, 3),
    ):
        batch = read_all(source)
        assert batch["image"][:, 0, 0, 0].tolist() == [*range(start, start + num)]
        assert batch["target"].tolist() == [i % 2 for i in range(num)]
    facts = found.train.facts
    assert (facts["class_names"], facts["num_classes"]) == (("cat", "dog"), 2)
    data = pickle.dumps(found.train)
    assert len(data) < 10_000
    assert (
        read_all(pickle.loads(data))["image"] == read_all(found.train)["image"]
    ).all()


def test_one_split_with_rows_chosen_and_labels_that_are_numbers(tmp_path: Path):
    whole = rows(0, 40).cast_column("label", datasets.Value("int64"))
    chosen = whole.select([*range(39, 9, -1)])
    chosen.save_to_disk(tmp_path / "set")
    source = f"hf:{tmp_path}/set"
    found = load_images(source=source, image_size=4, validation_fraction=0)
    assert (len(found.train), len(found.test)) == (27, 3)
    assert found.train.facts["class_names"] == ("0", "1")
    digests = {found.train.facts["digest"]}
    whole.select([*range(10, 40)]).save_to_disk(tmp_path / "other")
    other = load_images(source=f"hf:{tmp_path}/other", image_size=4)
    assert len(digests | {other.train.facts["digest"]}) == 2


def test_a_folder_of_parquet_files(tmp_path: Path):
    (tmp_path / "set").mkdir()
    for split, some in (("train", rows(0, 6)), ("test", rows(100, 2))):
        some.to_parquet(str(tmp_path / "set" / f"{split}-00000-of-00001.parquet"))
    found = load_images(
        source=f"hf:{tmp_path}/set", image_size=4, channels=1, validation_fraction=0
    )
    assert read_all(found.train)["image"][:, 0, 0, 0].tolist() == [*range(6)]
    assert read_all(found.test)["target"].tolist() == [0, 1]


def test_an_image_that_is_only_a_path_is_not_opened():
    some = datasets.Dataset.from_dict(
        {
            "image": [
                {"bytes": grey(1), "path": None},
                {"bytes": None, "path": "/dev/zero"},
            ]
        },
        features=datasets.Features({"image": datasets.Image(decode=False)}),
    )
    places = SplitRanges("hf:set", {"train": range(2)})
    store = HfStore(places, some, np.zeros(2, np.int32), {})
    files, _ = store.read(np.arange(2))
    assert files[0].data == grey(1)
    assert files[1].name == "split 'train' of hf:set: image 1"
    assert "contains the path of the image" in str(files[1].data)


def no_images(folder: Path) -> None:
    datasets.Dataset.from_dict({"text": ["a"], "label": [0]}).save_to_disk(folder)


def two_labels(folder: Path) -> None:
    some = rows(0, 4).rename_column("label", "fine")
    coarse = some.add_column("coarse", [0, 1, 0, 1])  # type: ignore[call-arg]
    coarse.cast_column("coarse", some.features["fine"]).save_to_disk(folder)


def other_classes(folder: Path) -> None:
    test = rows(0, 3).filter(lambda row: row["label"] == 1)
    train = rows(0, 3).filter(lambda row: row["label"] == 0)
    save(folder, train=train, test=test)


def split_twice(folder: Path) -> None:
    save(folder, train=rows(0, 3), Val=rows(3, 3), validation=rows(6, 3))


def damaged(folder: Path) -> None:
    rows(0, 4).save_to_disk(folder)
    (file,) = folder.glob("*.arrow")
    file.write_bytes(file.read_bytes()[:100])


def nothing(folder: Path) -> None:
    folder.mkdir()


@each_row(
    ("write", "message"),
    [
        (no_images, "has the columns text, label: expected one Image column"),
        (two_labels, "has the columns image, fine, coarse: expected"),
        (other_classes, "the test split has classes .* lacks: dog"),
        (split_twice, "Val and validation are both the validation split"),
        (damaged, r"cannot be opened .* Nothing is downloaded"),
        (nothing, "cannot be opened .*: expected a directory written by save_to_disk"),
        (None, r"cannot be opened .*load_dataset\('NAME'\)"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, write: Any, message: str):
    source = "hf:nobody/no-such-set"
    if write is not None:
        write(tmp_path / "set")
        source = f"hf:{tmp_path}/set"
    with pytest.raises(UserError, match=f"(?s){message}"):
        load_images(source=source, image_size=4)


@pytest.mark.parametrize("variable", [None, "0"])
def test_only_opening_is_off_the_network(
    variable: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """What the process does with the hub afterwards is not our business."""
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    if variable is not None:
        monkeypatch.setenv("HF_HUB_OFFLINE", variable)
    for place in (config, constants):
        monkeypatch.setattr(place, "HF_HUB_OFFLINE", False)
    datasets.enable_progress_bars()
    save(tmp_path / "set", train=rows(0, 6), test=rows(0, 6))
    load, during = datasets.load_from_disk, []

    def look(folder: str) -> Any:
        during.append((os.environ["HF_HUB_OFFLINE"], config.HF_HUB_OFFLINE))
        during.append((constants.HF_HUB_OFFLINE, datasets.are_progress_bars_disabled()))
        return load(folder)

    monkeypatch.setattr(datasets, "load_from_disk", look)
    load_images(source=f"hf:{tmp_path}/set", image_size=4, channels=1)
    assert during == [("1", True), (True, True)]
    assert os.environ.get("HF_HUB_OFFLINE") == variable
    assert config.HF_HUB_OFFLINE is constants.HF_HUB_OFFLINE is False
    assert not datasets.are_progress_bars_disabled()


def test_without_the_library_the_extra_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"needs the library .* pip install -e .*\[hf"):
        load_images(source="hf:mnist")


# --- targets of several numbers ------------------------------------------------------


def test_lists_of_classes(tmp_path: Path):
    """A list of labels becomes columns of 0 and 1; a list that is missing, of NaN."""
    names = datasets.ClassLabel(names=NAMES)
    made = datasets.Dataset.from_dict(
        {
            "image": [{"bytes": grey(i), "path": None} for i in range(4)],
            "label": [[0], [], [1, 0], None],
        },
        features=datasets.Features(
            {"image": datasets.Image(), "label": datasets.List(names)}
        ),
    )
    made.save_to_disk(tmp_path / "set")
    config = DataConfig(source=f"hf:{tmp_path}/set")
    store, _ = open_hf(f"{tmp_path}/set", config)
    expected = np.array([[1, 0], [0, 0], [1, 1], [np.nan, np.nan]], np.float32)
    np.testing.assert_array_equal(store.read(np.arange(4))[1], expected)
    assert store.facts["target_names"] == ("cat", "dog")


def test_a_column_of_classes_goes_before_lists_of_classes(tmp_path: Path):
    """Lists beside the one label are passed over, as columns of other types are."""
    names = datasets.List(datasets.ClassLabel(names=["small", "old"]))
    tagged = rows(0, 4).add_column("tags", [[0], [1], [], [0, 1]])  # type: ignore[call-arg]
    tagged = tagged.cast_column("tags", names)
    numbered = tagged.cast_column("label", datasets.Value("int64"))
    for name, one in (
        ("called", tagged.rename_column("label", "kind")),
        ("numbers", numbered),
    ):
        one.save_to_disk(tmp_path / name)
        source = f"hf:{tmp_path}/{name}"
        store, _ = open_hf(f"{tmp_path}/{name}", DataConfig(source=source))
        assert store.facts["num_classes"] == 2
        assert store.read(np.arange(4))[1].tolist() == [0, 1, 0, 1]


def test_columns_of_numbers(tmp_path: Path):
    made = rows(0, 3).add_column("size", [0.5, None, 2.0])
    made.save_to_disk(tmp_path / "set")
    source = f"hf:{tmp_path}/set"
    config = DataConfig(source=source, targets=("size", "label"))
    store, _ = open_hf(f"{tmp_path}/set", config)
    expected = np.array([[0.5, 0], [np.nan, 1], [2, 0]], np.float32)
    np.testing.assert_array_equal(store.read(np.arange(3))[1], expected)
    assert store.facts["target_names"] == ("size", "label")
    with pytest.raises(UserError, match=r"no column 'sise'.*perhaps you meant size"):
        open_hf(f"{tmp_path}/set", DataConfig(source=source, targets=("sise",)))
