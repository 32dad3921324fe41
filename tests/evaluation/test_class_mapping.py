"""Sets whose classes are some of the model's, in another order, or others."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxtrain.config import Config, DataConfig
from jaxtrain.data import opening, sources
from jaxtrain.data.hold_out import absent_classes
from jaxtrain.data.image_source import Source
from jaxtrain.data.stores import remarks_of
from jaxtrain.errors import UserError
from jaxtrain.inference.model import TrainedModel
from jaxtrain.tools.evaluation import subject
from jaxtrain.tools.evaluation.class_mapping import map_classes
from tests.helpers.described import describe
from tests.helpers.images import write_folder
from tests.helpers.masked import NAMES, write_masks
from tests.helpers.rows import each_row

SIDE = 32


def model_of(task: str, names: tuple[str, ...], columns: bool = False) -> TrainedModel:
    about = describe(
        "lenet",
        (SIDE, SIDE, 3),
        task=task,
        class_names=None if columns else names,
        column_names=names if columns else None,
    )
    return TrainedModel(about, {}, {}, {})


def opened(source: str, **fields: Any) -> tuple[DataConfig, Source]:
    data = DataConfig(source=source, image_size=SIDE, crop_pct=1.0, **fields)
    store, splits = opening.open_store(data, to_train=False)
    return data, sources.open_split(data, store, splits, False, "all")


KNOWN = ("dog", "cat", "cow", "10")


@each_row(
    ("kind", "found", "missing"),
    [
        ("folder", ("cat", "dog"), ["cow", "10"]),
        ("folder", ("10", "cat", "cow", "dog"), []),
        ("csv", ("cow", "10"), ["dog", "cat"]),
    ],
)
def test_classes_are_mapped_by_name(
    tmp_path: Path, kind: str, found: tuple[str, ...], missing: list[str]
) -> None:
    write_folder(tmp_path, {f"{name}/{i}.png": i for name in found for i in range(2)})
    lines = [f"{name}/{i}.png,{name}" for name in found for i in range(2)]
    (tmp_path / "list.csv").write_text("\n".join(["path,label", *lines]))
    place = tmp_path if kind == "folder" else tmp_path / "list.csv"
    data, source = opened(f"{kind}:{place}")
    model = model_of("classification", KNOWN)
    mapped, mapping = map_classes(source, model, data)
    mapped = pickle.loads(pickle.dumps(mapped))
    assert mapping is not None and mapping.json() == {
        "missing_classes": missing,
        "unknown_classes": [],
        "num_unknown": 0,
    }
    task = subject.task_of_model(Config(), model, mapped.facts, data)
    assert task.class_names == KNOWN
    names = [mapped.store.store.names[i].decode() for i in mapped.indices.tolist()]
    wanted = [KNOWN.index(name.split("/")[0]) for name in names]
    assert mapped.read(np.arange(len(mapped)))["target"].tolist() == wanted
    assert mapped.targets(np.arange(len(mapped))).tolist() == wanted
    assert mapped.strata().tolist() == wanted
    assert remarks_of(mapped.store) == remarks_of(source.store)
    assert bool(remarks_of(source.store)) == (kind == "folder")
    assert absent_classes(mapped) == missing


def test_unknown_classes_are_left_out_up_to_the_fraction(tmp_path: Path) -> None:
    files = {f"{name}/{i}.png": i for name in ("cat", "dog") for i in range(5)}
    write_folder(tmp_path, {**files, "bird/1.png": 1, "bird/2.png": 2})
    model = model_of("classification", KNOWN)
    data, source = opened(f"folder:{tmp_path}", max_bad_fraction=0.2)
    mapped, mapping = map_classes(source, model, data)
    assert len(mapped) == 10 and mapping is not None
    assert (mapping.unknown, mapping.num_unknown) == (("bird",), 2)
    assert {*mapped.targets(np.arange(10)).tolist()} == {0, 1}
    data, source = opened(f"folder:{tmp_path}")
    with pytest.raises(
        UserError, match=r"2 of 12 images have classes unknown .*bird.*max_bad_frac"
    ):
        map_classes(source, model, data)


@each_row(
    ("text", "fields", "wanted"),
    [
        (
            "path,cat,dog\n1.png,1,0\n2.png,0,1\n",
            {"targets": ("cat", "dog")},
            [[0, 1, np.nan], [1, 0, np.nan]],
        ),
        (
            "path,label\n1.png,cow cat\n2.png,dog\n",
            {"label_separator": " "},
            [[0, 1, 1], [1, 0, 0]],
        ),
        (
            "path,label\n1.png,cat\n2.png,dog\n",
            {"label_separator": " "},
            [[0, 1, 0], [1, 0, 0]],
        ),
        (
            "path,label\n1.png,cat bird\n2.png,dog\n",
            {"label_separator": " ", "max_bad_fraction": 0.5},
            [[0, 1, 0], [1, 0, 0]],
        ),
    ],
)
def test_labels_are_mapped_by_name(
    tmp_path: Path, text: str, fields: dict[str, Any], wanted: list[list[float]]
) -> None:
    write_folder(tmp_path, {"1.png": 1, "2.png": 2})
    (tmp_path / "list.csv").write_text(text)
    data, source = opened(f"csv:{tmp_path}/list.csv", **fields)
    mapped, mapping = map_classes(source, model_of("multilabel", KNOWN[:3]), data)
    np.testing.assert_array_equal(mapped.targets(np.arange(2)), wanted)
    assert mapping is not None
    assert mapping.num_unknown == int("bird" in text)


@pytest.mark.plugins
def test_boxes_are_mapped_by_name(tmp_path: Path) -> None:
    write_folder(tmp_path, {"images/1.png": 1, "images/2.png": 2})
    (tmp_path / "labels").mkdir()
    rows = "0 0.5 0.5 0.5 0.5\n1 0.5 0.5 0.2 0.6\n"
    (tmp_path / "labels" / "1.txt").write_text(rows)
    (tmp_path / "labels" / "2.txt").write_text(rows + "2 0.4 0.4 0.3 0.3\n")
    (tmp_path / "data.yaml").write_text("names: [cow, dog, bird]")
    data, source = opened(f"yolo:{tmp_path}", max_bad_fraction=0.5)
    mapped, mapping = map_classes(source, model_of("detection", KNOWN, True), data)
    classes = mapped.read(np.arange(2))["target"]["classes"]
    assert classes.tolist() == [[2, 0, -1], [2, 0, -1]]
    assert mapping is not None and mapping.json() == {
        "missing_classes": ["cat", "10"],
        "unknown_classes": ["bird"],
        "num_unknown": 1,
    }


@pytest.mark.plugins
def test_pixels_are_mapped_by_name(tmp_path: Path) -> None:
    write_masks(tmp_path, {"": 3}, side=SIDE)
    data, source = opened(f"masks:{tmp_path}", max_bad_fraction=0.9)
    known = ("sky", *NAMES[::-1])
    mapped, mapping = map_classes(source, model_of("segmentation", known), data)
    before, after = (s.read(np.arange(3))["target"] for s in (source, mapped))
    np.testing.assert_array_equal(after, len(NAMES) - before)
    assert mapping is not None and mapping.missing == ("sky",)
    fewer, mapping = map_classes(source, model_of("segmentation", NAMES[:2]), data)
    after = fewer.read(np.arange(3))["target"]
    np.testing.assert_array_equal(after, np.where(before < 2, before, 255))
    assert mapping is not None and 0 < mapping.num_unknown <= 3
