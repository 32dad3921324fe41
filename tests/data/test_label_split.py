"""Held-out parts of images with several labels: shares of every label are kept."""

import numpy as np
import pytest

from jaxtrain.config import DataConfig
from jaxtrain.data.slices import groups_of, stratified_split
from jaxtrain.data.sources import load_splits
from jaxtrain.data.stores import ArrayStore


def labels(num: int, seed: int) -> np.ndarray:
    """Return labels with the shares of a long-tailed set, some going together."""
    rng = np.random.default_rng(seed)
    shares = np.array([0.5, 0.3, 0.2, 0.1, 0.05, 0.0, 0.0])
    present = rng.random((num, len(shares))) < shares
    present[rng.choice(num, 35, replace=False), 5] = True
    present[rng.choice(num, 5, replace=False), 6] = True
    present[:, 3] |= present[:, 5] & (rng.random(num) < 0.7)
    return present


@pytest.mark.parametrize("seed", range(5))
def test_shares_of_each_label(seed: int):
    """Of each label a fifth, within one: 7 of 35, and 1 of 5."""
    present = labels(1000, seed)
    kept, held_out = stratified_split(present, 0.2, seed)
    assert sorted([*kept, *held_out]) == list(range(1000))
    assert abs(len(held_out) - 200) <= 1
    wanted = 0.2 * present.sum(axis=0)
    assert present.sum(axis=0)[5] == 35 and abs(present[held_out, 5].sum() - 7) <= 1
    assert (np.abs(present[held_out].sum(axis=0) - wanted) <= 1).all()


def test_the_choice_is_the_seed_s():
    present = labels(300, 0)
    first, again, other = (
        stratified_split(present, 0.2, seed)[1] for seed in (1, 1, 2)
    )
    assert first.tolist() == again.tolist() != other.tolist()


def test_missing_labels_and_numbers():
    """0, 1, -1 and NaN are labels; other numbers are one group."""
    target = np.array([[1, 0], [-1, np.nan], [0, 1]], np.float32)
    assert groups_of(target).tolist() == [[True, False], [False, False], [False, True]]
    target[0, 0] = 0.5
    assert groups_of(target).tolist() == [0, 0, 0]


def test_splits_of_a_set_keep_the_shares():
    """Both parts that are held out of a source have their share of a rare label."""
    target = labels(1000, 0).astype(np.float32)
    store = ArrayStore(np.zeros((1000, 4, 4, 1), np.uint8), target, {})
    config = DataConfig(test_fraction=0.2, validation_fraction=0.25)
    splits = load_splits(config, 0, store, {"train": [np.arange(1000)]})
    assert splits.validation is not None
    for part in (splits.test, splits.validation):
        assert abs(part.targets(np.arange(len(part)))[:, 5].sum() - 7) <= 1
