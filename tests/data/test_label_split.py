"""Held-out parts of images with several labels: shares of every label are kept."""

import numpy as np

from jaxtrain.config import DataConfig
from jaxtrain.data.slices import groups_of, stratified_split
from jaxtrain.data.sources import load_splits
from jaxtrain.data.stores import ArrayStore
from tests.helpers.rows import each_row

FACTS = {"target_names": ("a", "b")}


def labels(num: int, seed: int) -> np.ndarray:
    """Return labels with the shares of a long-tailed set, some going together."""
    rng = np.random.default_rng(seed)
    shares = np.array([0.5, 0.3, 0.2, 0.1, 0.05, 0.0, 0.0])
    present = rng.random((num, len(shares))) < shares
    present[rng.choice(num, 35, replace=False), 5] = True
    present[rng.choice(num, 5, replace=False), 6] = True
    present[:, 3] |= present[:, 5] & (rng.random(num) < 0.7)
    return present


@each_row("seed", range(3))
def test_shares_of_each_label(seed: int):
    """Of each label a fifth, within one: 7 of 35, and 1 of 5."""
    present = labels(1000, seed)
    kept, held_out = stratified_split(present, 0.2, seed)
    assert sorted([*kept, *held_out]) == list(range(1000))
    assert abs(len(held_out) - 200) <= 1
    wanted = 0.2 * present.sum(axis=0)
    assert present.sum(axis=0)[5] == 35 and abs(present[held_out, 5].sum() - 7) <= 1
    assert (np.abs(present[held_out].sum(axis=0) - wanted) <= 1).all()


@each_row(
    ("each", "num_labels", "fraction"),
    [(4, 50, 0.1), (5, 200, 0.09), (6, 100, 0.1), (3, 200, 0.2), (1, 100, 0.3)],
)
def test_roundings_of_the_labels_add_up(each: int, num_labels: int, fraction: float):
    """Labels whose share is no whole number of images do not all round one way."""
    present = np.repeat(np.eye(num_labels, dtype=bool), each, axis=0)
    kept, held_out = stratified_split(present, fraction, 0)
    wanted = 0 if each == 1 else fraction * len(present)
    assert abs(len(held_out) - wanted) <= 1
    assert (np.abs(present[held_out].sum(axis=0) - fraction * each) <= 1).all()
    assert present[kept].any(axis=0).all()


def test_missing_labels_and_numbers():
    """0, 1, -1 and NaN are labels; other numbers are one group."""
    target = np.array([[1, 0], [-1, np.nan], [0, 1]], np.float32)
    found = groups_of(target, FACTS)
    assert found.tolist() == [[True, False], [False, False], [False, True]]
    # Columns that a set does not name are not labels.
    assert groups_of(target, {}).tolist() == [0, 0, 0]
    target[0, 0] = 0.5
    assert groups_of(target, FACTS).tolist() == [0, 0, 0]


def test_splits_of_a_set_keep_the_shares():
    """Both parts that are held out of a source have their share of a rare label."""
    target = labels(1000, 0).astype(np.float32)
    store = ArrayStore(np.zeros((1000, 4, 4, 1), np.uint8), target, FACTS)
    config = DataConfig(test_fraction=0.2, validation_fraction=0.25)
    splits = load_splits(config, 0, store, {"train": [np.arange(1000)]})
    assert splits.validation is not None
    for part in (splits.test, splits.validation):
        assert abs(part.targets(np.arange(len(part)))[:, 5].sum() - 7) <= 1
