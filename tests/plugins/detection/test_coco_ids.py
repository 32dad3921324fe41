"""Ids of COCO's results: those of a list, of the data of the run, or numbers."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from jaxtrain.config import Config, DataConfig
from jaxtrain.data.image_files import FileNames
from jaxtrain.errors import UserError
from jaxtrain.plugins.detection import coco_ids

FINDER: Any = SimpleNamespace(names=("cat", "dog"), category_ids=(7, 9))


def write(folder: Path) -> Path:
    """A folder of images whose names are no numbers, and their list."""
    (folder / "train").mkdir(parents=True)
    values = {
        "images": [
            {"id": 40 + i, "file_name": f"{name}.png", "width": 4, "height": 4}
            for i, name in enumerate("abc")
        ],
        "annotations": [],
        "categories": [{"id": 3, "name": "dog"}, {"id": 2, "name": "cat"}],
    }
    for name in "abc":
        Image.new("RGB", (4, 4)).save(folder / "train" / f"{name}.png")
    path = folder / "annotations" / "instances_train.json"
    path.parent.mkdir()
    path.write_text(json.dumps(values))
    return path


def names_of(*paths: Path | str) -> FileNames:
    return FileNames.join([str(path).encode() for path in paths])


def ids_of(found: coco_ids.CocoIds) -> list[Any]:
    return list(found.images.values())


def test_ids_are_those_of_the_given_list(tmp_path: Path) -> None:
    path = write(tmp_path)
    names = names_of(*(tmp_path / "train" / f"{name}.png" for name in "cab"))
    found = coco_ids.find_ids(names, FINDER, path, tmp_path)
    assert ids_of(found) == [42, 40, 41]
    assert found.categories == (2, 3)
    assert str(path) in found.origin
    lacking = names_of(tmp_path / "train" / "a.png", "other.png")
    with pytest.raises(UserError, match=r"lacks 1 of 2 images: other\.png"):
        coco_ids.find_ids(lacking, FINDER, path, tmp_path)


def test_a_list_may_have_other_folders_and_other_classes(tmp_path: Path) -> None:
    path = write(tmp_path)
    values = json.loads(path.read_text())
    values["images"][0]["file_name"] = "C:\\photos\\a.png"
    values["images"][1]["file_name"] = "deep/c.png"
    values["categories"] = [{"id": 3, "name": "dog"}]
    path.write_text(json.dumps(values))
    names = names_of("a.png", "deep/c.png", "flat/c.png")
    found = coco_ids.find_ids(names, FINDER, path, tmp_path)
    assert ids_of(found) == [40, 41, 42]
    assert found.categories == (7, 3)
    values["categories"] = [{"id": 7, "name": "dog"}]
    path.write_text(json.dumps(values))
    with pytest.raises(UserError, match="lacks the category 'cat'"):
        coco_ids.find_ids(names, FINDER, path, tmp_path)


def test_ids_are_those_of_the_data_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    data = DataConfig(source=f"coco:{tmp_path}", boxes_drawn_on="stored")
    config = Config(data=data)
    monkeypatch.setattr(coco_ids, "read_run", lambda workdir: config)
    (tmp_path / "link.png").symlink_to(tmp_path / "train" / "c.png")
    names = names_of(tmp_path / "link.png", tmp_path / "train" / "b.png")
    found = coco_ids.find_ids(names, FINDER, None, tmp_path)
    assert ids_of(found) == [42, 41]
    assert found.categories == FINDER.category_ids
    assert found.on_stored
    # One of elsewhere has no id there.
    names = names_of(tmp_path / "train" / "b.png", "elsewhere.png")
    assert ids_of(coco_ids.find_ids(names, FINDER, None, tmp_path)) == [1, 2]


@pytest.mark.parametrize(
    ("paths", "ids"),
    [
        (["x/000012.jpg", "0003.png"], [12, 3]),
        (["x/1.png", "y/1.png"], [1, 2]),
        (["b.png", "7.png"], [1, 2]),
        (["9" * 30 + ".png"], [1]),
    ],
)
def test_ids_are_numbers(tmp_path: Path, paths: list[str], ids: list[int]) -> None:
    found = coco_ids.find_ids(names_of(*paths), FINDER, None, tmp_path)
    assert ids_of(found) == ids
