"""Lists of boxes as COCO's: layouts and quirks of the tools that write them."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from jaxtrain.config import DataConfig
from jaxtrain.data import opening
from jaxtrain.data.boxes import CATEGORY_IDS, NAMES
from jaxtrain.data.stores import Store, remarks_of
from jaxtrain.errors import UserError
from jaxtrain.plugins.detection.coco_segmentation import bounds

# Images of a set, of 40x30 pixels, with a box each.
NUM, SIZE = 6, (40, 30)
BOX = [4.0, 5.0, 10.0, 12.0]

Values = dict[str, list[dict[str, Any]]]


def values_of(num: int = NUM) -> Values:
    return {
        "images": [
            {"id": i, "file_name": f"{i}.png", "width": SIZE[0], "height": SIZE[1]}
            for i in range(num)
        ],
        "annotations": [
            {"id": i, "image_id": i, "category_id": 7 + i % 2, "bbox": BOX}
            for i in range(num)
        ],
        "categories": [{"id": 7, "name": "cat"}, {"id": 8, "name": "dog"}],
    }


def write_images(folder: Path, num: int = NUM) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(num):
        Image.new("RGB", SIZE, (i, 0, 0)).save(folder / f"{i}.png")


def write_list(path: Path, values: Values | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values or values_of()))


def opened(folder: Path, values: Values | None = None, **fields: Any) -> Any:
    """A store of images and a list beside them."""
    write_images(folder)
    write_list(folder / "list.json", values)
    return open_store(f"coco:{folder / 'list.json'}", **fields)[0]


def open_store(source: str, **fields: Any) -> tuple[Store, Any]:
    return opening.open_store(DataConfig(source=source, **fields))


def boxes_of(store: Any, index: int = 0) -> list[list[float]]:
    return store.read(np.array([index]))[1][0].boxes.tolist()


def remarks(store: Store) -> dict[str, str]:
    return {remark.title: remark.text for remark in remarks_of(store)}


CORNERS = [4, 5, 14, 17]


# --- boxes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "box", "title", "told"),
    [
        ({"bbox": [4, 5, 0, 12]}, None, "boxes left out", "1 without area"),
        ({"bbox": [50, 5, 9, 9]}, None, "boxes left out", "outside their images"),
        ({"bbox": [-0.5, 5, 9, 9]}, [0, 5, 8.5, 14], None, ""),
        ({"bbox": [-3, 5, 90, 9]}, [0, 5, 40, 14], "boxes clipped", "more than a pix"),
        ({"bbox": ["4", "5", "10", "12"]}, CORNERS, None, ""),
        ({"bbox": [1, 2, 3]}, None, "boxes left out", "not a list of four numbers"),
        ({"bbox": [], "segmentation": [[4, 5, 14, 5, 14, 17]]}, CORNERS, None, ""),
        ({"bbox": None, "segmentation": [4, 5, 14, 17]}, CORNERS, None, ""),
        ({"iscrowd": None, "area": float("nan")}, CORNERS, None, ""),
        ({"iscrowd": "yes"}, None, "boxes left out", "whose iscrowd is not 0 or 1"),
        ({"image_id": "0", "category_id": "7"}, CORNERS, None, ""),
        ({"image_id": 77}, None, "boxes left out", "of images that are not listed"),
        ({"category_id": 99}, None, "boxes left out", "of categories that are not"),
        ({"image_id": None}, None, "boxes left out", "without image_id"),
        ({"id": 1}, CORNERS, None, ""),
    ],
)
def test_a_box_is_read_or_left_out_and_counted(
    tmp_path: Path, change: Any, box: Any, title: str | None, told: str
) -> None:
    values = values_of()
    values["annotations"][0].update(change)
    store = opened(tmp_path, values)
    assert boxes_of(store) == ([] if box is None else [box])
    found = remarks(store)
    assert list(found) == ([] if title is None else [title])
    if title is not None:
        assert told in found[title]
        assert "such as annotations[0]" in found[title]


def test_a_box_that_is_listed_twice_is_one(tmp_path: Path) -> None:
    values = values_of()
    values["annotations"].append(values["annotations"][0])
    store = opened(tmp_path, values)
    assert boxes_of(store) == [CORNERS]
    assert "1 that are listed twice" in remarks(store)["boxes left out"]


def test_too_many_damaged_boxes_end_with_the_option(tmp_path: Path) -> None:
    values = values_of()
    for one in values["annotations"][:2]:
        one["bbox"] = "nothing"
    with pytest.raises(UserError, match=r"2 of 6 boxes left out, more than data\.max"):
        opened(tmp_path, values)
    store = opened(tmp_path, values, max_bad_fraction=0.3)
    assert "2 whose bbox" in remarks(store)["boxes left out"]


@pytest.mark.parametrize(
    ("segmentation", "found"),
    [
        ([[1, 2, 5, 2, 5, 9], [3, 1, 4, 1, 4, 2]], (1, 1, 4, 8)),
        # A mask of 3 rows and 4 columns, column by column: rows 1 and 2 of column 1.
        ({"size": [3, 4], "counts": [4, 2, 6]}, (1, 1, 1, 2)),
        # From row 2 of column 0 to row 0 of column 2: whole columns.
        ({"size": [3, 4], "counts": [2, 5, 5]}, (0, 0, 3, 3)),
        # Compressed by pycocotools: the first of these two masks.
        ({"size": [3, 4], "counts": "426"}, (1, 1, 1, 2)),
        ({"size": [3, 4], "counts": [12]}, None),
        ({"size": [3, 4], "counts": "~"}, None),
        ([[1, 2, 3]], None),
        ("no", None),
    ],
)
def test_bounds_of_segmentations(segmentation: Any, found: Any) -> None:
    assert bounds(segmentation) == found


# --- images --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"id": "0"},
        {"width": None, "height": 0},
        {"file_name": "images\\0.png"},
        {"file_name": "C:\\photos\\0.png"},
        {"file_name": "/home/somebody/photos/0.png"},
        {"file_name": "../photos/0.png"},
        {"file_name": "{here}/0.png"},
    ],
)
def test_names_sizes_and_ids_of_images_are_read(tmp_path: Path, change: Any) -> None:
    values = values_of()
    values["images"][0].update(change)
    name = values["images"][0]["file_name"]
    values["images"][0]["file_name"] = name.replace("{here}", str(tmp_path))
    store = opened(tmp_path, values)
    assert store.file_names[0] == b"0.png"
    assert store.sizes[0].tolist() == [30, 40]
    assert boxes_of(store) == [CORNERS]
    assert not remarks(store)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"file_name": "nowhere.png"}, "1 that do not exist, such as images[0], now"),
        ({"file_name": "../other.png"}, "1 outside the directory of the data set"),
        ({"file_name": "link.png"}, "1 outside the directory of the data set"),
        ({"file_name": "pipe.png"}, "1 that are not regular files"),
        ({"file_name": None}, "1 no file_name"),
        ({"id": None}, "1 without id"),
        ({"width": None, "file_name": "text.png"}, "1 without a size"),
    ],
)
def test_an_image_that_cannot_be_used_is_left_out_alone(
    tmp_path: Path, change: Any, told: str
) -> None:
    outside, folder = tmp_path / "other.png", tmp_path / "set"
    Image.new("RGB", SIZE).save(outside)
    folder.mkdir()
    (folder / "link.png").symlink_to(outside)
    os.mkfifo(folder / "pipe.png")
    (folder / "text.png").write_text("no image")
    values = values_of()
    values["images"][0].update(change)
    if change.get("file_name") == "{outside}":
        values["images"][0]["file_name"] = str(outside)
    store = opened(folder, values)
    assert list(map(store.file_names.__getitem__, range(5))) == [
        f"{i}.png".encode() for i in range(1, NUM)
    ]
    found = remarks(store)
    assert told in found["images left out"]
    values["images"][1]["file_name"] = "nowhere.png"
    with pytest.raises(UserError, match=r"2 of 6 images left out, more than data\.max"):
        opened(folder, values)
    assert opened(folder, values, max_bad_fraction=0.5)


def test_files_outside_are_read_only_where_it_is_allowed(tmp_path: Path) -> None:
    outside, values = tmp_path / "other.png", values_of()
    Image.new("RGB", SIZE).save(outside)
    for i, name in enumerate((str(outside), "../other2.png")):
        values["images"][i]["file_name"] = name
    Image.new("RGB", SIZE).save(tmp_path / "other2.png")
    with pytest.raises(UserError, match=r"set data\.allow_outside to True"):
        opened(tmp_path / "set", values)
    store = opened(tmp_path / "set", values, allow_outside=True)
    assert len(store.ends) == NUM
    assert [file.data for file in store.read(np.arange(2))[0]] == [
        outside.read_bytes(),
        (tmp_path / "other2.png").read_bytes(),
    ]


def test_images_of_one_list_lie_in_several_folders(tmp_path: Path) -> None:
    """The first image alone would say that all lie in the first folder."""
    write_images(tmp_path / "train", 2)
    write_images(tmp_path / "images")
    for i in range(2):
        (tmp_path / "images" / f"{i}.png").unlink()
    write_list(tmp_path / "annotations" / "instances_train.json")
    store: Any = open_store(f"coco:{tmp_path}")[0]
    assert store.file_names[0] == b"train/0.png"
    assert store.file_names[2] == b"images/2.png"


# --- categories ----------------------------------------------------------------------


def test_an_unused_category_may_have_the_name_of_another(tmp_path: Path) -> None:
    values = values_of()
    values["categories"].insert(0, {"id": 0, "name": "cat", "supercategory": "none"})
    store = opened(tmp_path, values)
    assert store.facts[NAMES] == ("cat", "dog")
    assert store.facts[CATEGORY_IDS] == (7, 8)
    values["annotations"][0]["category_id"] = 0
    with pytest.raises(UserError, match="the name cat belongs to several categories"):
        opened(tmp_path, values)


def test_ids_that_are_texts_get_numbers(tmp_path: Path) -> None:
    values = values_of()
    for one, key in ((values["categories"], "id"), (values["images"], "id")):
        for row in one:
            row[key] = f"x{row[key]}"
    for row in values["annotations"]:
        row |= {name: f"x{row[name]}" for name in ("image_id", "category_id")}
    store = opened(tmp_path, values)
    assert store.facts[CATEGORY_IDS] == (1, 2)
    assert boxes_of(store) == [CORNERS]


# --- layouts -------------------------------------------------------------------------


def roboflow(folder: Path) -> None:
    for split in ("train", "valid", "test"):
        write_images(folder / split)
        write_list(folder / split / "_annotations.coco.json")


def cvat(folder: Path) -> None:
    write_images(folder / "images" / "default")
    write_list(folder / "annotations" / "instances_default.json")


def coco_2017(folder: Path) -> None:
    for split in ("train2017", "val2017"):
        write_images(folder / split)
        write_list(folder / "annotations" / f"instances_{split}.json")
        write_list(folder / "annotations" / f"captions_{split}.json")


def other_case(folder: Path) -> None:
    for split in ("Train2017", "VAL2017"):
        write_images(folder / "Images" / split)
        write_list(folder / "Annotations" / f"instances_{split.lower()}.json")


def label_studio(folder: Path) -> None:
    values = values_of()
    for i, one in enumerate(values["images"]):
        one["file_name"] = f"../../label-studio/data/media/images/{i}.png"
    write_images(folder / "images")
    write_list(folder / "result.json", values)


def fiftyone(folder: Path) -> None:
    write_images(folder / "data")
    write_list(folder / "labels.json")


@pytest.mark.parametrize(
    ("write", "splits", "guessed"),
    [
        (roboflow, ["train", "validation", "test"], True),
        (cvat, ["train"], True),
        (coco_2017, ["train", "validation"], True),
        (other_case, ["train", "validation"], True),
        (label_studio, ["train"], False),
        (fiftyone, ["train"], False),
    ],
)
def test_layouts_of_tools(
    tmp_path: Path, write: Callable[[Path], None], splits: list[str], guessed: bool
) -> None:
    write(tmp_path)
    source = f"coco:{tmp_path}"
    if guessed:
        assert opening.complete(str(tmp_path)) == source
    store, found = open_store(source)
    assert list(found) == splits
    assert len(found["train"][0]) == NUM
    assert not remarks(store)
    stored, targets = store.read(np.arange(NUM * len(splits)))
    assert all(isinstance(one.data, bytes) for one in stored)
    assert [one.boxes.tolist() for one in targets] == [[CORNERS]] * len(stored)


def test_one_file_of_roboflow_has_its_images_beside_it(tmp_path: Path) -> None:
    roboflow(tmp_path)
    path = tmp_path / "train" / "_annotations.coco.json"
    assert opening.complete(str(path)) == f"coco:{path}"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert len(open_store(f"coco:{path}")[1]["train"][0]) == NUM


def test_a_given_folder_may_be_that_of_all_or_of_the_split(tmp_path: Path) -> None:
    write_images(tmp_path / "there" / "train2017")
    write_list(tmp_path / "instances_train2017.json")
    source = f"coco:{tmp_path / 'instances_train2017.json'}"
    for folder in ("there", "there/train2017"):
        store, _ = open_store(source, images_dir=str(tmp_path / folder))
        assert not remarks(store)


def test_the_folder_of_the_lists_stands_for_the_set(tmp_path: Path) -> None:
    coco_2017(tmp_path)
    store, _ = open_store(f"coco:{tmp_path / 'annotations'}")
    assert not remarks(store)


def test_two_lists_of_a_split_are_refused(tmp_path: Path) -> None:
    coco_2017(tmp_path)
    write_list(tmp_path / "annotations" / "instances_train2014.json")
    with pytest.raises(UserError, match="are both the train split"):
        open_store(f"coco:{tmp_path}")
    with pytest.raises(UserError, match="found none"):
        open_store(f"coco:{tmp_path / 'train2017'}")


# --- the doctor ----------------------------------------------------------------------
