"""Intervals: the weights, the sums of resamples, and what comes of them."""

import math
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

from jaxtrain import keys
from jaxtrain.config import Config
from jaxtrain.evaluation import resampling
from jaxtrain.tasks.base import Task
from jaxtrain.tasks.build import build_task
from jaxtrain.tasks.task_metrics import sums_of

NUM, CLASSES = 300, 4
RNG = np.random.default_rng(1)
LABELS = RNG.integers(0, CLASSES, NUM).astype(np.int32)
LOGITS = (RNG.normal(size=(NUM, CLASSES)) + 2 * np.eye(CLASSES)[LABELS]).astype("f4")
MASK = np.r_[np.ones(NUM - 20), np.zeros(20)].astype(np.int32)


@pytest.fixture(scope="module")
def task() -> Task:
    facts = {"num_classes": CLASSES}
    return build_task(Config(), (8, 8, 1), facts)


def draw(seed: int, index: np.ndarray) -> np.ndarray:
    weights = jax.jit(resampling.weights, static_argnums=2)
    return np.asarray(weights(keys.root_key(seed), index, 1000))


@pytest.fixture(scope="module")
def counts() -> np.ndarray:
    return draw(0, np.arange(NUM))


@pytest.fixture(scope="module")
def sums(task: Task, counts: np.ndarray) -> tuple[Any, Any]:
    """The sums of the split, and those of the resamples."""
    whole = jax.device_get(jax.jit(partial(sums_of, task))(LOGITS, LABELS, MASK))
    add = jax.jit(resampling.resampled_sums, static_argnums=0)
    return whole, jax.device_get(add(task, LOGITS, LABELS, MASK, counts))


def test_weights_are_poisson_draws_of_mean_one(counts: np.ndarray):
    assert counts.shape == (1000, NUM)
    drawn = np.bincount(counts.ravel(), minlength=9)[:9] / counts.size
    expected = [math.exp(-1) / math.factorial(k) for k in range(9)]
    # 300,000 draws: five standard deviations of each part.
    deviation = np.sqrt(np.array(expected) / counts.size)
    assert np.all(np.abs(drawn - expected) < 5 * deviation + 1e-9)
    # Neither of two examples nor of two resamples do they go together.
    for rows in (counts[:, :50].T, counts[:50]):
        between = np.corrcoef(rows) - np.eye(50)
        assert np.abs(between).max() < 5 / math.sqrt(rows.shape[1])


def test_a_weight_is_a_function_of_the_example(counts: np.ndarray):
    some = np.array([7, 3, 250])
    np.testing.assert_array_equal(draw(0, some), counts[:, some])
    assert (draw(1, some) != counts[:, some]).mean() > 0.5


def test_sums_are_those_of_examples_as_often_as_they_were_drawn(
    counts: np.ndarray, sums: tuple[Any, Any]
):
    _, resampled = sums
    predicted = LOGITS.argmax(-1)
    wide = LOGITS.astype(np.float64)
    loss = np.log(np.exp(wide).sum(-1)) - wide[np.arange(NUM), LABELS]
    for i in (0, 999):
        drawn = np.repeat(np.arange(NUM), counts[i] * MASK)
        true, found = LABELS[drawn], predicted[drawn]
        assert resampled["num_examples"][i] == len(drawn)
        assert resampled["accuracy"][i] == (true == found).sum()
        hits, examples, predictions = resampled["balanced_accuracy"][i]
        for of_class, kept in ((hits, true[true == found]), (examples, true)):
            np.testing.assert_array_equal(
                of_class, np.bincount(kept, minlength=CLASSES)
            )
        np.testing.assert_array_equal(
            predictions, np.bincount(found, minlength=CLASSES)
        )
        np.testing.assert_allclose(resampled["loss"][i], loss[drawn].sum(), rtol=1e-5)
    assert "confusion_matrix" not in resampled


def test_intervals_are_those_of_drawing_with_replacement(
    task: Task, sums: tuple[Any, Any]
):
    """Another bootstrap: as many examples as there are, drawn by NumPy."""
    whole, resampled = sums
    found = resampling.intervals(task, resampled, whole)
    rng, known = np.random.default_rng(5), np.flatnonzero(MASK)
    hits = (LOGITS.argmax(-1) == LABELS)[known]
    labels, predicted = LABELS[known], LOGITS.argmax(-1)[known]
    accuracy, recall, precision = [], [], []
    for _ in range(4000):
        drawn = rng.integers(0, len(known), len(known))
        hit = hits[drawn]
        accuracy.append(hit.mean())
        recall.append(hit[labels[drawn] == 2].mean())
        precision.append(hit[predicted[drawn] == 1].mean())
    pairs = [
        (found["accuracy"], accuracy),
        (found["recall"][2], recall),
        (found["precision"][1], precision),
    ]
    for pair, values in pairs:
        low, high = np.percentile(values, (2.5, 97.5))
        # A percentile of 1,000 draws is uncertain by 0.08 standard deviations; and a
        # total that varies widens a mean by a part in the number of examples.
        np.testing.assert_allclose(pair, (low, high), atol=0.3 * float(np.std(values)))
    assert "num_examples" not in found


def test_what_is_undefined_in_all_resamples_has_no_interval(
    task: Task, sums: tuple[Any, Any]
):
    whole, resampled = sums
    counts = np.zeros_like(resampled["balanced_accuracy"])
    # Ten examples of the first class, all right.
    counts[..., 0], ten = 10, np.full_like(resampled["num_examples"], 10)
    alone = {
        **resampled,
        "accuracy": ten,
        "balanced_accuracy": counts,
        "num_examples": ten,
    }
    found = resampling.intervals(task, alone, whole)
    assert found["recall"] == [[1.0, 1.0], None, None, None]
    assert found["accuracy"] == [1.0, 1.0]
