"""Layouts of folders: the source that each is read by, and what is no class."""

from pathlib import Path
from typing import Any

import pytest

from jaxtrain.config import DataConfig
from jaxtrain.data import formats
from jaxtrain.data.opening import complete, open_store
from jaxtrain.data.stores import remarks_of
from jaxtrain.errors import UserError
from tests.helpers.images import grey
from tests.helpers.rows import each_row

COCO_JSON = '{"images": [{"id": 1, "file_name": "1.png"}], "annotations": []}'
ROBOFLOW = "_annotations.coco.json"
THREE = ("train", "valid", "test")
# Name -> files below the folder; the source that `new` takes, where {} is the folder;
# what folder:DIR is refused with, None where it is read.
LAYOUTS: dict[str, tuple[list[str], str, str | None]] = {
    "Roboflow's COCO": (
        [f"{split}/{name}" for split in THREE for name in ("1.png", ROBOFLOW)],
        "coco:{}",
        r"test, train, valid are not classes, and test/_annotations\.coco\.json has "
        r"annotations: give coco:",
    ),
    "COCO 2017": (
        [
            *("train2017/1.png", "val2017/2.png"),
            "annotations/instances_train2017.json",
        ],
        "coco:{}",
        "train2017, val2017 are not classes, .* give coco:",
    ),
    "ultralytics": (
        ["data.yaml", "train/images/1.png", "train/labels/1.txt"],
        "yolo:{}",
        "images is not a class, .* give yolo:",
    ),
    "masks": (
        ["images/1.png", "masks/1.png"],
        "masks:{}",
        "images, masks are not classes, .* give masks:",
    ),
    "a table beside splits": (
        ["Train/1.png", "Test/2.png", "list.csv"],
        "csv:{}/list.csv",
        "Test, Train are not classes, and list.csv has annotations: give csv:",
    ),
    "Pascal VOC": (
        ["training/1.png", "training/1.xml", "validation/1.png"],
        "folder:{}",
        r"are not classes, .* format \(Pascal VOC: training/1\.xml\): export",
    ),
    "no annotations": (
        ["train/1.png", "val/2.png", "test1/3.png"],
        "folder:{}",
        "test1, train, val are not classes, and no annot.*, test1/CLASS, or list",
    ),
    "classes": (["a/1.png", "train/2.png"], "folder:{}", None),
    "splits of classes": (
        ["Training/a/1.png", "Training/b/2.png", "val/a/1.png", "notes.csv"],
        "folder:{}",
        None,
    ),
}
CONTENTS = {".csv": "path,label\n1.png,a\n", ".json": COCO_JSON, ".txt": "", ".xml": ""}


def write(root: Path, files: list[str]) -> None:
    for file in files:
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(CONTENTS.get(path.suffix, "").encode() or grey(0))


@pytest.mark.plugins
@each_row("name", [*LAYOUTS])
def test_what_lies_in_a_folder_says_how_it_is_read(name: str, tmp_path: Path):
    files, source, message = LAYOUTS[name]
    write(tmp_path, files)
    assert complete(str(tmp_path)) == source.format(tmp_path)
    config = DataConfig(source=f"folder:{tmp_path}")
    if message is None:
        store, _ = open_store(config)
        assert store.facts["num_classes"] == 2
    elif message:
        with pytest.raises(UserError, match=message):
            open_store(config)


@pytest.mark.plugins
@each_row(
    ("source", "message"),
    [
        ("{}/none", "= '{}/none' does not exist .relative to (?!.*expected ).*$"),
        ("none", r"'none' does not exist \(relative to .*: expected digits"),
        ("{}/set.zip", r"is not a file of a supported type \(\.csv, .*\.yml\)"),
        *(
            (f"{kind}:{{}}/none", "none' does not exist .relative to")
            for kind in (
                "folder",
                "csv",
                "arrays",
                "packed",
                "yolo",
            )
        ),
    ],
)
def test_a_path_that_is_not_there(source: str, message: str, tmp_path: Path):
    (tmp_path / "set.zip").touch()
    with pytest.raises(UserError, match=message.replace("{}", str(tmp_path))):
        open_store(DataConfig(source=source.format(tmp_path)))


@pytest.mark.plugins
@each_row(
    ("kind", "files", "names"),
    [
        ("folder", ["a/1.png", "b/3.png", "a/2.heic"], ["a/1.png", "b/3.png"]),
        (
            "masks",
            ["images/1.png", "masks/1.png", "images/2.HEIC", "masks/2.png"],
            ["images/1.png"],
        ),
        (
            "yolo",
            [
                *("images/train/1.png", "labels/train/1.txt", "images/train/2.heic"),
                *("labels/train/2.txt", "images/val/3.png", "labels/val/3.txt"),
            ],
            ["images/train/1.png", "images/val/3.png"],
        ),
    ],
)
def test_images_of_formats_that_a_library_would_read_are_told(
    kind: str,
    files: list[str],
    names: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(formats, "is_read", lambda name: name != "HEIF")
    write(tmp_path, files)
    (tmp_path / "classes.txt").write_text("ground\nthing\n")
    for label in tmp_path.glob("labels/*/*.txt"):
        label.write_text("0 0.5 0.5 0.5 0.5")
    assert complete(str(tmp_path)) == f"{kind}:{tmp_path}"
    store: Any
    store, _ = open_store(DataConfig(source=f"{kind}:{tmp_path}"))
    stored = getattr(store, "file_names", None) or store.names
    assert sorted(stored[i].decode() for i in range(len(stored))) == names
    (remark,) = (r for r in remarks_of(store) if r.title == "passed over")
    assert "1 .heic" in remark.text and "[heic]'" in remark.text
    assert remark.serious
    for path in tmp_path.rglob("[13].*"):
        path.unlink()
    with pytest.raises(UserError, match=r"1 \.heic.*pip install -e"):
        open_store(DataConfig(source=f"{kind}:{tmp_path}"))


@pytest.mark.plugins
@each_row(
    "text",
    [
        "path,label\n1.png,a\n".encode("utf-16"),
        b"sep=;\nfilename;label\n1.png;a\n",
    ],
)
def test_a_table_is_known_by_its_header_as_csv_reads_it(tmp_path: Path, text: bytes):
    write(tmp_path, ["images/1.png"])
    (tmp_path / "list.csv").write_bytes(text)
    assert complete(str(tmp_path)) == f"csv:{tmp_path}/list.csv"
