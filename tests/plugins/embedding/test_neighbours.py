"""Nearest neighbours against scikit-learn, which looks for them one set at a time."""

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors

from jaxtrain.plugins.embedding import neighbours
from jaxtrain.plugins.embedding.neighbours import (
    VOTERS,
    find_neighbours,
    knn_accuracy,
    mean_loss,
    recall_at,
)
from jaxtrain.plugins.embedding.task import KEPT, Embedding
from jaxtrain.tasks.base import Values

NUM = 300


@pytest.fixture(scope="module")
def made() -> tuple[np.ndarray, np.ndarray]:
    """Embeddings around a direction for each of 12 classes, of length 1."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 12, NUM)
    x = rng.standard_normal((12, 8))[label] + 1.2 * rng.standard_normal((NUM, 8))
    return x / np.linalg.norm(x, axis=1, keepdims=True), label


@pytest.mark.parametrize("block", [neighbours.BLOCK, 7 * NUM])
def test_recall_is_that_of_scikit_learn(
    made: tuple[np.ndarray, np.ndarray], block: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(neighbours, "BLOCK", block)
    x, label = made
    found = find_neighbours(x, label, temperature=0.1)
    # Without the examples themselves, as they are asked for those of the fit.
    index = NearestNeighbors(n_neighbors=10).fit(x).kneighbors(return_distance=False)
    np.testing.assert_array_equal(found.nearest, index)
    for k in (1, 5, 10):
        hits = (label[index[:, :k]] == label[:, None]).any(axis=1)
        assert recall_at(found, k) == hits.mean()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("block", [neighbours.BLOCK, 7 * NUM, NUM])
def test_of_equal_neighbours_the_first_are_the_nearest(
    block: int, dtype: type, monkeypatch: pytest.MonkeyPatch
):
    """Copies of few embeddings: products of equal vectors may differ by rounding."""
    monkeypatch.setattr(neighbours, "BLOCK", block)
    rng = np.random.default_rng(1)
    few = rng.standard_normal((9, 33)).astype(dtype)
    few /= np.linalg.norm(few, axis=1, keepdims=True)
    kind = rng.integers(0, 9, NUM)
    found = find_neighbours(few[kind], kind % 3, temperature=0.1)
    # The kinds from near to far of each kind, then the numbers.
    away = (-np.asarray(few, float) @ np.asarray(few, float).T).round(9)
    rank = np.argsort(np.argsort(away, axis=1), axis=1)[kind][:, kind]
    others = [np.delete(np.arange(NUM), i) for i in range(NUM)]
    expected = [
        some[np.argsort(rank[i][some], kind="stable")][:10]
        for i, some in enumerate(others)
    ]
    np.testing.assert_array_equal(found.nearest, expected)


def test_votes_are_those_of_scikit_learn_where_one_class_wins(
    made: tuple[np.ndarray, np.ndarray],
):
    x, label = made
    found = find_neighbours(x, label, temperature=0.1)
    right, decided = [], np.zeros(NUM, bool)
    asked = range(0, NUM, 10)
    for i in asked:
        others = np.arange(NUM) != i
        model = KNeighborsClassifier(VOTERS).fit(x[others], label[others])
        votes = np.sort(model.predict_proba(x[i : i + 1])[0])
        decided[i] = votes[-1] > votes[-2]
        right.append(model.predict(x[i : i + 1])[0] == label[i])
    alone = found._replace(answerable=decided)
    assert 10 < decided.sum() < len(asked)
    assert knn_accuracy(alone) == np.array(right)[decided[::10]].mean()


def test_of_equal_votes_the_nearest_wins():
    angle = np.array([0.0, 0.1, 0.2, 0.31, 0.42])
    x = np.stack([np.cos(angle), np.sin(angle)], 1)
    found = find_neighbours(x, np.array([0, 0, 1, 1, 0]), temperature=0.1)
    # Of the first: 0, 1, 1, 0 from near to far.
    assert found.label[0].tolist() == [0, 1, 1, 0]
    only_first = found._replace(answerable=np.arange(5) == 0)
    assert knn_accuracy(only_first) == 1


def test_the_loss_is_that_of_training_over_one_batch(
    made: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
):
    from jaxtrain.plugins.embedding.losses import contrastive_losses

    monkeypatch.setattr(neighbours, "BLOCK", 11 * NUM)
    x, label = made
    found = find_neighbours(x, label, temperature=0.2)
    losses = contrastive_losses(jnp.array(x), jnp.array(label), temperature=0.2)
    np.testing.assert_allclose(found.loss, losses, rtol=1e-5)
    assert mean_loss(found) == pytest.approx(float(losses.mean()), rel=1e-5)


def test_examples_without_another_of_their_class_are_left_out():
    x = np.eye(4)
    found = find_neighbours(x, np.array([0, 0, 1, 2]), temperature=0.1)
    assert found.answerable.tolist() == [True, True, False, False]
    assert recall_at(found, 10) == 1
    for few in (x[:1], x[:2]):
        nothing = find_neighbours(few, np.arange(len(few)), temperature=0.1)
        values = (recall_at(nothing, 1), knn_accuracy(nothing), mean_loss(nothing))
        assert values == (None, None, None)


def test_examples_of_unknown_class_are_no_neighbours(
    made: tuple[np.ndarray, np.ndarray],
):
    x, label = made
    unknown = np.arange(NUM) % 3 == 0
    task = Embedding((8, 8, 1), {}, loss="contrastive", size=8)
    sums = {"loss": 0.0, "num_examples": NUM}

    def values_of(x: np.ndarray, label: np.ndarray) -> Values:
        return task.values(sums, {KEPT: {"embedding": x, "label": label}})

    found = values_of(x, np.where(unknown, -1, label))
    assert found == values_of(x[~unknown], label[~unknown])
