"""Parts that are held out: the last image of a class stays, and what lacks is named."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jaxtrain.commands.evaluate import describe
from jaxtrain.config import Config, DataConfig
from jaxtrain.data.hold_out import HoldOut, absent_classes
from jaxtrain.data.image_source import Source
from jaxtrain.data.slices import stratified_split
from jaxtrain.data.sources import Splits, load_splits
from jaxtrain.data.stores import ArrayStore
from jaxtrain.errors import UserError
from jaxtrain.tasks.classification import Classification
from jaxtrain.trainer.tables import describe_absent
from tests.helpers.rows import each_row

FEW = [0] * 100 + [1] * 100 + [*range(2, 42)]


def store_of(target: Any, **facts: Any) -> ArrayStore:
    array = np.array(target)
    images = np.zeros((len(array), 2, 2, 1), np.uint8)
    if array.ndim == 1 and not facts:
        facts = {"num_classes": int(array.max()) + 1}
    return ArrayStore(images, array, facts)


def loaded(store: ArrayStore, seed: int = 0, **fields: Any) -> Splits:
    config = DataConfig(source="x", **fields)
    return load_splits(config, seed, store, {"train": [np.arange(len(store.images))]})


@each_row("seed", range(4))
@each_row("fraction", [0.1, 0.4])
def test_the_last_image_of_a_class_is_trained_on(fraction: float, seed: int):
    labels = np.array([*FEW, 42, 42, 43, 43, 43])
    store = store_of(labels)
    found = loaded(store, seed, test_fraction=fraction, validation_fraction=fraction)
    assert found.validation is not None
    parts = [found.train.indices, found.validation.indices, found.test.indices]
    assert sorted(np.concatenate(parts)) == [*range(len(labels))]
    assert (np.diff(parts[0]) > 0).all()
    assert set(labels[parts[0]]) == set(labels)
    # Of what was held out before, only last ones have gone back to training.
    kept, before = stratified_split(labels, fraction, 0)
    assert set(parts[2]) <= set(before)
    assert not set(labels[before]) - set(labels[parts[2]]) & set(labels[kept])
    first, second = stratified_split(labels[kept], fraction, seed)
    assert set(parts[1]) <= set(kept[second])
    assert len(first) + len(before) - len(parts[2]) <= len(parts[0])
    # For every seed the same test.
    again = loaded(store, seed + 9, test_fraction=fraction)
    assert again.test.indices.tolist() == parts[2].tolist()


@each_row("seed", [9, 21, 48])
def test_the_last_image_of_a_label_is_trained_on(seed: int):
    rng = np.random.default_rng(seed)
    present = rng.random((rng.integers(6, 14), rng.integers(3, 6))) < 0.35
    present = present[:, present.any(axis=0)]
    # Shares of labels that overlap are kept, but for the last one of a label.
    kept, _ = stratified_split(present, 0.4, 1)
    trained, held_out = stratified_split(present[kept], 0.4, 1)
    assert not present[kept][trained].any(axis=0).all()
    names = tuple(map(str, range(present.shape[1])))
    store = store_of(present.astype(np.float32), target_names=names)
    whole = Source(store, np.arange(len(present)), (2, 2, 1), 9)
    hold_out = HoldOut(DataConfig(source="x"), whole)
    test, validation = (hold_out.take("x", 0.4, 1) for _ in range(2))
    assert hold_out.train.strata().any(axis=0).all()
    parts = [part.indices for part in (hold_out.train, validation, test)]
    assert sorted(np.concatenate(parts)) == [*range(len(present))]
    assert set(parts[1]) <= set(kept[held_out])


@each_row("seed", [47, 440])
def test_others_are_held_out_where_each_drawn_one_is_the_last_of_a_label(seed: int):
    rng = np.random.default_rng(seed)
    present = rng.random((rng.integers(6, 40), rng.integers(3, 12))) < 0.1
    present = present[:, present.any(axis=0)]
    kept, drawn = stratified_split(present, 0.1, 1)
    assert (present[drawn] & ~present[kept].any(axis=0)).any(axis=1).all()
    names = tuple(map(str, range(present.shape[1])))
    store = store_of(present.astype(np.float32), target_names=names)
    whole = Source(store, np.arange(len(present)), (2, 2, 1), 9)
    hold_out = HoldOut(DataConfig(source="x"), whole)
    held = hold_out.take("x", 0.1, 1)
    assert hold_out.train.strata().any(axis=0).all()
    both = np.r_[held.indices, hold_out.train.indices]
    assert sorted(both) == [*range(len(present))]
    assert len(held) == len(drawn)


def test_groups_that_are_no_classes_may_be_held_out_whole():
    store = store_of(np.arange(20), target_is="a count")
    found = loaded(store, test_fraction=0.25, validation_fraction=0)
    assert len(found.test) == 5


def test_nothing_can_be_held_out_of_classes_of_one_image():
    with pytest.raises(UserError, match="one example of each class remains"):
        loaded(store_of(np.arange(20)))


def test_classes_without_images_are_named():
    found = loaded(store_of(FEW))
    assert absent_classes(found.train) == []
    assert absent_classes(found.test) == [*map(str, range(2, 42))]
    setup: Any = SimpleNamespace(splits=found, config=Config())
    told = "of 40 classes: 2, 3, 4, 5, 6 and 35 more"
    assert describe_absent(setup) == {
        f"no {n} images": told for n in ("validation", "test")
    }
    data = {"source": "x", "split": "test", "num_examples": 9, "num_unreadable": 0}
    result: dict[str, Any] = {
        **dict.fromkeys(("tta", "class_names", "calibration", "temperature")),
        **dict.fromkeys(("out_of_distribution", "adversarial", "corruptions")),
        "data": {**data, "absent_classes": absent_classes(found.test), "remarks": {}},
        "intervals": {"metrics": {}},
        "run": {"step": 8},
        "metrics": {},
    }
    assert describe(result, Classification)["no images"] == told
    columns = store_of([[1.0, 0], [0, 0]] * 9, target_names=("cat", "dog"))
    assert absent_classes(loaded(columns).test) == ["dog"]
