"""Examples without a label: left out and counted, or refused, in all sources."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import datasets
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrain import own
from jaxtrain.config import DataConfig
from jaxtrain.data.defects import Unreadable
from jaxtrain.data.opening import open_store
from jaxtrain.data.order import DataOrder
from jaxtrain.data.replacements import fill_in
from jaxtrain.data.slices import class_split, select
from jaxtrain.data.sources import load_splits, open_split
from jaxtrain.data.stores import remarks_of
from jaxtrain.data.unlabelled import missing_numbers, missing_texts
from jaxtrain.errors import UserError
from jaxtrain.tasks.classification import Classification, MixedLabels
from tests.helpers.images import grey, write_folder, write_tfds
from tests.helpers.rows import each_row

NAN = float("nan")


def write_csv(folder: Path, labels: Sequence[Any]) -> str:
    write_folder(folder, {f"{i}.png": i for i in range(len(labels))})
    rows = [f"{i}.png,{'' if x is None else x}" for i, x in enumerate(labels)]
    (folder / "list.csv").write_text("\n".join(["path,label", *rows]))
    return f"csv:{folder}/list.csv"


def write_arrays(folder: Path, labels: Sequence[Any]) -> str:
    image = np.zeros((len(labels), 4, 4), np.uint8)
    folder.mkdir(exist_ok=True)
    np.savez(folder / "set.npz", image=image, label=np.array(labels))
    return f"arrays:{folder}/set.npz"


def write_hf(folder: Path, labels: Sequence[Any], kind: Any = None) -> str:
    features = {"image": datasets.Image(), "label": kind or datasets.Value("float64")}
    images = [{"bytes": grey(i), "path": None} for i in range(len(labels))]
    rows = {"image": images, "label": labels}
    table = datasets.Dataset.from_dict(rows, features=datasets.Features(features))
    datasets.DatasetDict({"train": table}).save_to_disk(folder / "set")
    return f"hf:{folder}/set"


def write_hf_classes(folder: Path, labels: Sequence[Any]) -> str:
    return write_hf(folder, labels, datasets.ClassLabel(names=["0", "1"]))


def write_packed(folder: Path, labels: Sequence[Any]) -> str:
    """Pack a set of a user's own, which may use -1 as it likes."""
    from jaxtrain.plugins.packed.writer import pack

    module = folder / f"made_{abs(hash(folder))}.py"
    module.write_text(
        "import numpy as np\n"
        "from jaxtrain.data.stores import ArrayStore\n"
        "def made():\n"
        f"    label = np.array({list(labels)!r}, np.int32)\n"
        "    image = np.zeros((len(label), 4, 4, 1), np.uint8)\n"
        "    facts = {'num_classes': 2, 'class_names': ('0', '1')}\n"
        "    return ArrayStore(image, label, facts), "
        "{'train': [np.arange(len(label))]}\n"
    )
    source = f"{module}:made"
    with own.allowing_nothing():
        own.allow([source])
        pack(DataConfig(source=source), folder / "packed", format="raw")
    return f"packed:{folder}/packed"


def opened(source: str, **fields: Any) -> tuple[Any, Any, DataConfig]:
    config = DataConfig(source=source, image_size=4, channels=1, **fields)
    return *open_store(config), config


@each_row(
    ("write", "missing"),
    [
        *((write_csv, missing) for missing in (None, "NaN", -1)),
        *((write_arrays, missing) for missing in (NAN, -1)),
        (write_hf, None),
        (write_hf_classes, None),
        (write_hf_classes, -1),
        (write_packed, -1),
    ],
)
def test_what_has_no_label_is_left_out_and_counted(
    tmp_path: Path, write: Callable[[Path, Sequence[Any]], str], missing: Any
):
    labels = [0, 1, 0, missing, 1, 0, 1, 0]
    store, splits, config = opened(write(tmp_path, labels))
    (train,) = splits["train"]
    assert store.strata(train).tolist() == [0, 1, 0, 1, 0, 1, 0]
    assert store.facts["class_names"] == ("0", "1")
    assert splits["unlabelled"][0].tolist() == [3]
    assert 3 not in select("all", splits, "x")
    (remark,) = remarks_of(store)
    assert remark.title == "without a label, train"
    assert (
        remark.text.startswith("1 of 8 examples in train are excluded: ")
        and "3" in remark.text
    )
    assert {*load_splits(config, 0, store, splits).train.strata()} == {0, 1}
    labels[4] = missing
    (tmp_path / "more").mkdir()
    source = write(tmp_path / "more", labels)
    with pytest.raises(UserError, match="2 of the 8 examples of the train split have"):
        opened(source)
    assert len(opened(source, max_bad_fraction=0.25)[1]["train"][0]) == 6
    # For tasks that learn from images alone.
    assert len(opened(source, train_split="train+unlabelled")[1]["train"][0]) == 6


def test_in_tfds_it_is_unreadable(tmp_path: Path):
    """The labels lie beside the images: they are not looked at before."""
    train = [(grey(i), -1 if i == 2 else i % 3) for i in range(9)]
    bare = [(grey(i), -1) for i in range(4)]
    write_tfds(tmp_path, {"train": train, "test": train[3:6], "unlabelled": bare})
    store, splits, config = opened("tfds:tiny", data_dir=str(tmp_path))
    source = open_split(config, store, splits, False, "train")
    bad: list[Unreadable] = []
    batch = source.read(np.arange(9), unreadable=bad)
    assert [(one.index, one.reason) for one in bad] == [
        (2, "the label is missing (-1)")
    ]
    filled = fill_in(source, batch, np.arange(9), bad)
    assert filled["target"].min() == 0 and filled["target"][2] >= 0
    bare_source = open_split(config, store, splits, False, "unlabelled")
    assert bare_source.read(np.arange(4))["target"].tolist() == [-1] * 4


@each_row(
    ("labels", "missing"),
    [
        ([0, 1, -1], [2]),
        ([-1, 1, -1], []),
        ([0.0, NAN, -1.0], [1, 2]),
        ([NAN, NAN], [0, 1]),
        (["a", "", "nan", "-1"], [1, 2]),
        (["-1", "1", ""], [2]),
    ],
)
def test_labels_that_are_none(labels: list[Any], missing: list[int]):
    texts = isinstance(labels[0], str)
    found = missing_texts(labels) if texts else missing_numbers(np.array(labels))
    assert np.flatnonzero(found).tolist() == missing


# --- sources of a user's own may have examples of class -1 ---------------------------


def test_accuracy_of_training_leaves_them_out():
    task = Classification((4, 4, 1), {"num_classes": 2})
    logits = jnp.array([[1.0, 0], [1, 0], [0, 1], [0, 1]])
    labels = jnp.array([0, -1, 1, 0])
    assert task.train_metrics(logits, labels)["accuracy"] == np.float32(2 / 3)
    known = Classification((4, 4, 1), {"num_classes": 2, "all_labelled": True})
    assert known.train_metrics(logits, labels % 2)["accuracy"] == 0.5
    mixed = MixedLabels(labels, jnp.array([1, 0, 1, -1]), jnp.full(4, 0.75))
    assert task.train_metrics(logits, mixed)["accuracy"] == np.float32(1.75 / 2)
    assert task.train_metrics(logits, jnp.full(4, -1))["accuracy"] == 0
    assert task.label(np.array(-1)) == "no label"


def test_balanced_sampling_and_held_out_classes_leave_them_out():
    groups = np.array([0, 0, 0, 1, -1, -1, 2, -1])
    order = DataOrder(0, len(groups), 4, groups)
    drawn = groups[np.concatenate([order.indices(step) for step in range(12)])]
    assert {*drawn.tolist()} == {0, 1, 2}
    labels = np.array([0, 1, 2, 3, -1])
    for seed in range(5):
        kept, held_out = class_split(labels, 0.5, seed)
        assert 4 in kept and len(held_out) == 2


@pytest.mark.plugins
def test_a_task_without_labels_takes_them():
    from jaxtrain.plugins.embedding.task import KEPT
    from jaxtrain.plugins.self_supervised.task import SelfSupervised

    targets = np.full(3, -1, np.int32)
    with pytest.raises(UserError, match="has no labels"):
        Classification((4, 4, 1), {"num_classes": 2}).check_targets(targets, "train")
    task = SelfSupervised((4, 4, 1), {})
    task.check_targets(targets, "train")
    kept = {"embedding": np.eye(3, 2), "label": targets}
    assert (
        task.values({"num_examples": 3, "loss": 0.0}, {KEPT: kept})["knn_accuracy"]
        is None
    )
