"""Layouts of YOLO sets as common tools write them, and rows of their label files."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxtrain.config import DataConfig
from jaxtrain.data import opening
from jaxtrain.data.boxes import NAMES
from jaxtrain.errors import UserError
from jaxtrain.plugins.detection.box_store import BoxFileStore
from jaxtrain.plugins.detection.yolo import open_yolo
from tests.helpers.images import grey
from tests.helpers.rows import each_row

ROW = "0 0.5 0.5 0.2 0.4"
YAML = "names: [cat, dog]\n"
IMAGES = (".png", ".PNG", ".JPG", ".jpg")
TWO = {"images/train/1.png": "", "labels/train/1.txt": ROW, "data.yaml": YAML}


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(IMAGES):
            path.write_bytes(grey(7))
        else:
            path.write_text(text)
    return root


def opened(place: Path, **fields: Any) -> tuple[Any, dict[str, list[str]]]:
    """Return the store, and of each split the images with the number of their boxes."""
    config = DataConfig(source=f"yolo:{place}", image_size=8, **fields)
    store, splits = open_yolo(str(place), config)
    assert isinstance(store, BoxFileStore)
    counts = np.diff(store.ends, prepend=0)
    return store, {
        split: [
            f"{os.fsdecode(store.file_names[i])} {counts[i]}"
            for i in np.concatenate(shards).tolist()
        ]
        for split, shards in splits.items()
    }


def told(store: Any) -> str:
    return "\n".join(f"{one.title}: {one.text}" for one in store.remarks)


LAYOUTS: dict[str, tuple[dict[str, str], dict[str, list[str]], str]] = {
    "capital letters": (
        {
            "Images/Train/1.JPG": "",
            "Labels/train/1.TXT": ROW,
            "Data.YAML": YAML,
            "VALID/Images/2.PNG": "",
            "VALID/LABELS/2.Txt": ROW,
        },
        {"train": ["Images/Train/1.JPG 1"], "validation": ["VALID/Images/2.PNG 1"]},
        "",
    ),
    "no splits, as Label Studio": (
        {
            "images/1.png": "",
            "images/2.png": "",
            "labels/1.txt": ROW,
            "classes.txt": "cat\ndog\n",
            "notes.json": "{}",
        },
        {"train": ["images/1.png 1", "images/2.png 0"]},
        "without a label file: 1 images, treated as having no boxes: images/2.png",
    ),
    "images and labels in one folder, as labelImg": (
        {"1.png": "", "1.txt": ROW, "classes.txt": "cat\n"},
        {"train": ["1.png 1"]},
        "",
    ),
    "Roboflow": (
        {
            "train/images/1.png": "",
            "train/labels/1.txt": ROW,
            "valid/images/2.png": "",
            "valid/labels/2.txt": ROW,
            "README.roboflow.txt": "",
            "data.yaml": "train: ../train/images\nval: ../valid/images\n"
            "test: ../test/images\nnc: 2\n" + YAML,
        },
        {"train": ["train/images/1.png 1"], "validation": ["valid/images/2.png 1"]},
        "missing splits: data.yaml names test: ../test/images",
    ),
    "CVAT": (
        {
            "obj_train_data/1.png": "",
            "obj_train_data/1.txt": ROW,
            "obj.names": "cat\n",
            "train.txt": "data/obj_train_data/1.png\n",
        },
        {"train": ["obj_train_data/1.png 1"]},
        "",
    ),
    "a path, and lists": (
        {
            "sub/images/all/1.png": "",
            "sub/images/all/2.png": "",
            "sub/images/more/3.png": "",
            "sub/labels/all/1.txt": ROW,
            "sub/labels/all/2.txt": ROW,
            "sub/labels/more/3.txt": ROW,
            "sub/lists/train.txt": "./../images/all/1.png\n",
            "sub/test.TXT": "images\\all\\2.png\n",
            "data.yaml": "path: sub\ntrain: [lists/train.txt, images/more]\n"
            "test: test.TXT\nval:\n" + YAML,
        },
        {
            "train": ["sub/images/all/1.png 1", "sub/images/more/3.png 1"],
            "test": ["sub/images/all/2.png 1"],
        },
        "",
    ),
    "a split of another machine": (
        {**TWO, "data.yaml": f"train: /content/set/images/train\n{YAML}"},
        {"train": ["images/train/1.png 1"]},
        "folders read: images/train for /content/set/images/train",
    ),
    "one folder as two splits": (
        {**TWO, "data.yaml": f"train: images/train\nval: images/train\n{YAML}"},
        {"train": ["images/train/1.png 1"]},
        "images twice: 1 image of validation (images/train) listed twice, used",
    ),
    "a class in validation alone": (
        {**TWO, "images/val/2.png": "", "labels/val/2.txt": ROW.replace("0", "1", 1)},
        {"train": ["images/train/1.png 1"], "validation": ["images/val/2.png 1"]},
        "only in validation: dog: the validation split has boxes of these",
    ),
    "a row twice": (
        {**TWO, "labels/train/1.txt": f"{ROW}\n{ROW}\n0.0 0.5 0.5 0.2 0.4\n"},
        {"train": ["images/train/1.png 1"]},
        "boxes listed twice: 2, each used once: images/train/1.png",
    ),
    "key points": (
        {
            **TWO,
            "data.yaml": f"kpt_shape: [2, 2]\n{YAML}",
            "labels/train/1.txt": f"{ROW} 0.1 0.1 0.9 0.9",
        },
        {"train": ["images/train/1.png 1"]},
        "columns not read: key points, in 1 rows",
    ),
}


@each_row("case", LAYOUTS)
def test_layouts_are_read(tmp_path: Path, case: str) -> None:
    files, splits, remark = LAYOUTS[case]
    names = {"data.yaml": YAML} if not _has_names(files) else {}
    root = write(tmp_path / "set", {**files, **names})
    assert opening.complete(str(root)) == f"yolo:{root}"
    store, found = opened(root)
    assert found == splits
    assert remark in told(store)
    assert remark or not store.remarks or "classes left out" in told(store)
    for file in root.glob("[dD]ata.*"):
        assert opening.complete(str(file)) == f"yolo:{file}"
        assert opened(file)[1] == splits


def _has_names(files: dict[str, str]) -> bool:
    known = ("data.yaml", "classes.txt", "obj.names")
    return any(name.lower().endswith(known) for name in files)


REFUSED: dict[str, tuple[dict[str, str | None], str]] = {
    "two images of one label file": (
        {"images/train/1.jpg": ""},
        r"1\.jpg and images/train/1\.png share one label file, labels/train/1\.txt",
    ),
    "no folder of labels": (
        {"images/val/2.png": "", "images/val/3.png": ""},
        "images/val: 2 images, but the label directory is missing",
    ),
    "no such split": (
        {"images/extra/2.png": ""},
        "images/extra is not a split .*; rename the directory, or move it away",
    ),
    "a list of what is not there": (
        {"data.yaml": "train: a.txt\n" + YAML, "a.txt": "\nimages/train/7.png"},
        r"a\.txt, line 2: images/train/7\.png does not exist; correct the list",
    ),
    "a path outside": (
        {"data.yaml": "train: ../other\n" + YAML, "../other/1.png": ""},
        r"\.\./other resolves to .*/other, outside .*data\.allow_outside",
    ),
    "names that differ": (
        {
            "data.yaml": None,
            "labels/train/classes.txt": "cat",
            "labels/classes.txt": "dog",
        },
        r"labels/train/classes\.txt and .*labels/classes\.txt list different",
    ),
}


@each_row("case", REFUSED)
def test_what_cannot_be_used_is_named(tmp_path: Path, case: str) -> None:
    files, message = REFUSED[case]
    root = write(tmp_path / "set", TWO)
    for name, text in files.items():
        if text is not None:
            write(root, {name: text})
        elif (root / name).is_dir():
            shutil.rmtree(root / name)
        else:
            (root / name).unlink()
    with pytest.raises(UserError, match=message):
        opened(root)


def test_outside_may_be_allowed(tmp_path: Path) -> None:
    root = write(tmp_path / "set", {"data.yaml": f"train: ../other/images\n{YAML}"})
    write(tmp_path / "other", {"images/1.png": "", "labels/1.txt": ROW})
    store, found = opened(root, allow_outside=True)
    assert found == {"train": ["../other/images/1.png 1"]}
    assert store.read(np.arange(1))[0][0].data == grey(7)


def test_a_path_is_the_folder_of_the_set(tmp_path: Path) -> None:
    """The YAML file lies elsewhere, as those that come with ultralytics do."""
    write(tmp_path / "set", {name: text for name, text in TWO.items() if "/" in name})
    for path in ("../set", str(tmp_path / "set")):
        text = f"path: {path}\ntrain: images/train\nval: images/train\n{YAML}"
        write(tmp_path / "conf", {"pets.yaml": text})
        store, found = opened(tmp_path / "conf" / "pets.yaml")
        assert found == {"train": ["images/train/1.png 1"]}
        assert store.facts[NAMES] == ("cat",)
    with pytest.raises(UserError, match=r"other\.yaml: No such file"):
        opened(tmp_path / "conf" / "other.yaml")
    # A copy goes before the place that it came from.
    shutil.copytree(tmp_path / "set", tmp_path / "copy")
    shutil.copy(tmp_path / "conf" / "pets.yaml", tmp_path / "copy" / "data.yaml")
    assert opened(tmp_path / "copy")[0].root == str(tmp_path / "copy")


@each_row(
    ("row", "box"),
    [
        ("0 0.5 0.5 0.2 0.4", (0.4, 0.3, 0.6, 0.7)),
        ("0.0 5e-1 .5 0.2 0.4 0.93", (0.4, 0.3, 0.6, 0.7)),
        ("0 0.1 0.2 0.5 0.3 0.2 0.9", (0.1, 0.2, 0.5, 0.9)),
        ("0 0.5 0.1 0.9 0.5 0.5 0.9 0.1 0.5", (0.1, 0.1, 0.9, 0.9)),
        # Corners of a rotated box lie outside where its thing is at the border.
        ("0 0.9 0.1 1.1 0.3 0.9 0.5 0.7 0.3", (0.7, 0.1, 1.0, 0.5)),
        (
            "0.5 0.5 0.5 0.2 0.4",
            "'0.5 0.5 0.5 0.2 0.4' is not a box; expected CLASS X Y",
        ),
        ("0 10 20 100 30 50 90", "coordinates from 10 to 100 is outside the image"),
        ("0 0.5 0.1 0.5 0.2 0.5 0.9", "has no area"),
        ("0 0.5 0.5 0 0.1", "has no area"),
        ("0 0.9 0.5 0.4 0.1", "is outside the image"),
        ("2.0 0.5 0.5 0.2 0.4", "the class 2 does not exist"),
    ],
)
def test_rows(tmp_path: Path, row: str, box: Any) -> None:
    root = write(tmp_path / "set", {**TWO, "labels/train/1.txt": row})
    if isinstance(box, str):
        with pytest.raises(UserError, match=r"labels/train/1\.txt, line 1: .*" + box):
            opened(root)
    else:
        store = opened(root)[0]
        np.testing.assert_allclose(store.boxes, [box], atol=1e-6)
        assert ("columns not read" in told(store)) == (len(row.split()) % 2 == 0)
