"""Sources of images with boxes: what is read, where boxes go, what is refused."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from jaxtrain.config import AugmentConfig, DataConfig
from jaxtrain.data import opening, sources
from jaxtrain.data.boxes import NAMES, NUM_BOXES
from jaxtrain.errors import UserError
from jaxtrain.plugins.packed.writer import pack
from tests.helpers.composed import compose
from tests.helpers.composed_boxes import coco_values, write_coco, write_yolo


@pytest.fixture(scope="module")
def made() -> Any:
    return {
        "train": compose(24),
        "val": compose(8, seed=1),
        "test": compose(8, split="test"),
    }


def config(source: str, **fields: Any) -> DataConfig:
    return DataConfig(source=source, image_size=64, **fields)


def check_boxes(source: sources.Source, some: Any, order: list[int]) -> None:
    batch = source.read(np.arange(len(order)))
    np.testing.assert_array_equal(batch["image"], some.image[order])
    target, num = batch["target"], source.facts[NUM_BOXES]
    assert target["boxes"].shape == (len(order), num, 4)
    for row, i in enumerate(order):
        there = some.box_class[i] >= 0
        kinds = target["classes"][row]
        assert (kinds[there.sum() :] == -1).all()
        np.testing.assert_array_equal(kinds[: there.sum()], some.box_class[i][there])
        boxes = target["boxes"][row, : there.sum()]
        np.testing.assert_allclose(boxes, some.boxes[i][there], atol=1e-4)


@pytest.mark.parametrize(
    ("write", "kind"), [(write_coco, "coco"), (write_yolo, "yolo")]
)
def test_images_come_with_their_boxes(
    tmp_path: Path, made: Any, write: Any, kind: str
) -> None:
    folder = write(tmp_path / "set", made)
    assert opening.complete(str(folder)) == f"{kind}:{folder}"
    splits = sources.load(config(f"{kind}:{folder}"), seed=0)
    assert splits.train.facts[NAMES] == made["train"].names
    assert splits.validation is not None
    check_boxes(splits.train, made["train"], list(range(24)))
    check_boxes(splits.validation, made["val"], list(range(8)))
    check_boxes(splits.test, made["test"], list(range(8)))
    present = splits.train.strata()
    np.testing.assert_array_equal(present, made["train"].present)


def test_an_image_of_another_size_is_unreadable(tmp_path: Path, made: Any) -> None:
    folder = write_coco(tmp_path / "set", made)
    Image.new("RGB", (64, 60)).save(folder / "train" / "000003.png")
    source = sources.load(config(f"coco:{folder}"), seed=0).train
    unreadable: list[Any] = []
    target = source.read(np.arange(4), unreadable=unreadable)["target"]
    assert "64x60 pixels" in str(unreadable[0])
    assert "64x64" in str(unreadable[0])
    assert (target["classes"][3] == -1).all()


def test_windows_that_the_host_cuts_take_boxes_along(tmp_path: Path) -> None:
    """What is white in a window is where its box says."""
    some = compose(8)
    for pixels, boxes in zip(some.image, some.boxes, strict=True):
        left, top, right, bottom = boxes[0].astype(int)
        pixels[:] = 0
        pixels[top:bottom, left:right] = 255
    some.box_class[:, 1:] = -1
    folder = write_coco(tmp_path / "set", {"train": some, "test": some})
    augment = AugmentConfig(random_resized_crop=True)
    data = config(f"coco:{folder}", augment=augment, validation_fraction=0.0)
    source = pickle.loads(pickle.dumps(sources.load(data, seed=0).train))
    batch = source.read(np.arange(8), np.stack([np.arange(8), np.full(8, 7)], 1))
    seen = 0
    for pixels, boxes, kinds in zip(
        batch["image"],
        batch["target"]["boxes"],
        batch["target"]["classes"],
        strict=True,
    ):
        white = pixels[..., 0] > 127
        rows, columns = np.flatnonzero(white.any(1)), np.flatnonzero(white.any(0))
        if kinds[0] >= 0 and len(rows):
            shown = columns[0], rows[0], columns[-1] + 1, rows[-1] + 1
            np.testing.assert_allclose(boxes[0], shown, atol=1)
            seen += 1
    assert seen > 3


def test_packed_they_would_lose_their_places(tmp_path: Path, made: Any) -> None:
    folder = write_coco(tmp_path / "set", made)
    with pytest.raises(UserError, match="targets that refer to pixels"):
        pack(config(f"coco:{folder}"), tmp_path / "packed", size=None, format="jpeg")


def broken(change: Any) -> dict[str, Any]:
    values = coco_values(compose(6))
    change(values)
    return values


BROKEN = {
    "images[1]: the id 0 occurs twice": lambda v: v["images"][1].update(id=0),
    "is already listed as images[0]": lambda v: v["images"][1].update(
        file_name="000000.png"
    ),
    "the name digit-1": lambda v: v["categories"][0].update(name="digit-1"),
    "has no list 'categories'": lambda v: v.pop("categories"),
    "has no box": lambda v: v["annotations"].clear(),
}


@pytest.mark.parametrize("told", BROKEN)
def test_what_is_wrong_is_named(tmp_path: Path, told: str) -> None:
    folder = write_coco(tmp_path / "set", {"train": compose(6)})
    place = folder / "annotations" / "instances_train.json"
    place.write_text(json.dumps(broken(BROKEN[told])))
    with pytest.raises(UserError) as error:
        sources.load(config(f"coco:{folder}"), seed=0)
    assert told in str(error.value)


def test_lists_that_are_no_json_are_refused(tmp_path: Path) -> None:
    folder = write_coco(tmp_path / "set", {"train": compose(2)})
    place = folder / "annotations" / "instances_train.json"
    for text in ("{", "[1]", '{"images": NaN}', "[" * 100_000):
        place.write_text(text)
        with pytest.raises(UserError, match=r"instances_train\.json"):
            sources.load(config(f"coco:{folder}"), seed=0)


def test_more_boxes_than_allowed_are_refused(tmp_path: Path, made: Any) -> None:
    folder = write_coco(tmp_path / "set", made)
    with pytest.raises(UserError, match=r"data\.max_boxes = 3"):
        sources.load(config(f"coco:{folder}", max_boxes=3), seed=0)


def test_crowds_are_marked_and_unused_categories_left_out(tmp_path: Path) -> None:
    values = coco_values(compose(12))
    values["categories"].append({"id": 0, "name": "things"})
    values["annotations"][0]["iscrowd"] = 1
    folder = write_coco(tmp_path / "set", {"train": compose(12)})
    place = folder / "annotations" / "instances_train.json"
    place.write_text(json.dumps(values))
    store, _ = opening.open_store(config(f"coco:{folder}"))
    assert "things" not in store.facts[NAMES]
    assert "things" in store.remarks[0].text  # pyright: ignore
    source = sources.load(config(f"coco:{folder}"), seed=0).train
    where = source.indices.tolist().index(0)
    assert source.read(np.array([where]))["target"]["crowd"][0, 0]


def test_names_of_yolo(tmp_path: Path, made: Any) -> None:
    folder = write_yolo(tmp_path / "set", made)
    (folder / "labels" / "train" / "none.txt").write_text("")
    with pytest.raises(UserError, match=r"none\.txt has no image"):
        sources.load(config(f"yolo:{folder}"), seed=0)
    (folder / "data.yaml").write_text("names: 3")
    with pytest.raises(UserError, match="has no valid `names`"):
        sources.load(config(f"yolo:{folder}"), seed=0)
    (folder / "data.yaml").unlink()
    with pytest.raises(UserError, match=r"classes\.txt"):
        sources.load(config(f"yolo:{folder}"), seed=0)


def test_a_hostile_yaml_is_refused(tmp_path: Path, made: Any) -> None:
    folder = write_yolo(tmp_path / "set", made)
    # Ten aliases in each of 12 lines: PyYAML makes 10^12 fields of it.
    lines = ["a0: &a0 {k: 1}"]
    for i in range(1, 13):
        lines.append(f"a{i}: &a{i}\n  <<: [{', '.join([f'*a{i - 1}'] * 10)}]")
    (folder / "data.yaml").write_text("\n".join(lines))
    with pytest.raises(UserError, match=r"data\.yaml is not valid YAML: aliases of"):
        sources.load(config(f"yolo:{folder}"), seed=0)
    (folder / "data.yaml").write_text("names: " + "[" * 2000)
    with pytest.raises(UserError, match=r"data\.yaml is not valid YAML"):
        sources.load(config(f"yolo:{folder}"), seed=0)
