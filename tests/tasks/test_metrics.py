"""Losses and evaluation metrics against NumPy and scikit-learn."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.metrics

from jaxtrain.config import Config
from jaxtrain.errors import UserError
from jaxtrain.tasks.base import Values
from jaxtrain.tasks.build import build_task
from jaxtrain.tasks.classification import MAX_MATRIX_CLASSES, Classification
from jaxtrain.tasks.losses import cross_entropy
from jaxtrain.tasks.metrics import Goal
from jaxtrain.tasks.task_metrics import goal, sums_of
from tests.helpers.rows import each_row

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(40, 10)).astype(np.float32)
LABELS = RNG.integers(0, 10, 40).astype(np.int32)


def classification(num_classes: int) -> Classification:
    facts = {"num_classes": num_classes}
    task = build_task(Config(), (8, 8, 1), facts)
    assert isinstance(task, Classification)
    return task


def evaluate(
    logits: np.ndarray, labels: np.ndarray, mask: np.ndarray | None = None
) -> Values:
    mask = np.ones(len(labels), np.int32) if mask is None else mask
    task = classification(logits.shape[-1])
    return task.values(
        jax.device_get(jax.jit(partial(sums_of, task))(logits, labels, mask))
    )


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return logits - np.log(np.exp(logits.astype(np.float64)).sum(-1, keepdims=True))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_is_that_of_the_smoothed_labels(smoothing: float):
    target = np.eye(10)[LABELS] * (1 - smoothing) + smoothing / 10
    expected = -(target * log_softmax(LOGITS)).sum(-1)
    loss = cross_entropy(jnp.asarray(LOGITS), jnp.asarray(LABELS), smoothing)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    assert loss.dtype == jnp.float32


def test_metrics_of_nan_are_nan():
    """Its `argmax` is class 0, which the labels have, too."""
    logits = LOGITS.copy()
    logits[3] = np.nan
    result = evaluate(logits, LABELS)
    assert {"loss", "accuracy", "macro_f1", "num_examples"} <= set(result)
    assert result.pop("num_examples") == len(LABELS)
    # What would be of classes is left out.
    assert all(np.isnan(value) for value in result.values())
    goal = Goal("accuracy", higher=True)
    assert not goal.improves(result["accuracy"], None)


def test_sums_leave_out_what_is_masked():
    mask = np.r_[np.ones(33, np.int32), np.zeros(7, np.int32)]
    logits = np.where(mask[:, None], LOGITS, np.float32("nan"))
    result = evaluate(logits, LABELS, mask)
    order = np.argsort(-LOGITS[:33], axis=-1)
    labels = LABELS[:33, None]
    assert result["num_examples"] == 33
    assert result["accuracy"] == (order[:, :1] == labels).mean()
    assert result["top5_accuracy"] == (order[:, :5] == labels).any(-1).mean()
    expected = -np.take_along_axis(log_softmax(LOGITS[:33]), labels, -1).mean()
    np.testing.assert_allclose(result["loss"], expected, rtol=1e-5)
    counts = sklearn.metrics.confusion_matrix(labels, order[:, 0], labels=range(10))
    assert result["confusion_matrix"] == counts.tolist()


@each_row("num_classes", [2, 5, 6])
def test_top5_is_of_more_than_five_classes(num_classes: int):
    found = evaluate(LOGITS[:, :num_classes], LABELS % num_classes)
    assert ("top5_accuracy" in found) == (num_classes > 5)


def test_metrics_of_the_classes_are_those_of_scikit_learn():
    """Where each class has examples and predictions: the rest is a convention."""
    found = LOGITS.argmax(-1)
    assert set(found) == set(LABELS) == set(range(10))
    result, pair = evaluate(LOGITS, LABELS), (LABELS, found)
    scores = sklearn.metrics.precision_recall_fscore_support(*pair)
    for name, reference in (
        ("balanced_accuracy", sklearn.metrics.balanced_accuracy_score(*pair)),
        ("macro_f1", sklearn.metrics.f1_score(*pair, average="macro")),
        ("recall", scores[1]),
        ("precision", scores[0]),
    ):
        np.testing.assert_allclose(result[name], reference, rtol=1e-12, err_msg=name)


def test_what_is_not_defined_is_none_and_left_out_of_the_means():
    """Three of class 0, of which one is taken for 1; of 2 and 3 there is nothing."""
    logits = np.eye(4, dtype=np.float32)[[0, 0, 1]]
    result = evaluate(logits, np.zeros(3, np.int32))
    assert result["recall"] == [2 / 3, None, None, None]
    assert result["precision"] == [1.0, 0.0, None, None]
    assert result["balanced_accuracy"] == 2 / 3
    assert result["macro_f1"] == pytest.approx((0.8 + 0) / 2)


def test_no_matrix_of_too_many_classes():
    logits = RNG.normal(size=(4, MAX_MATRIX_CLASSES + 1)).astype(np.float32)
    result = evaluate(logits, np.arange(4, dtype=np.int32))
    assert "confusion_matrix" not in result
    assert len(result["recall"]) == MAX_MATRIX_CLASSES + 1
    assert classification(logits.shape[-1]).pictures(result) == {}


def test_picture_of_the_matrix_is_dark_where_the_counts_are():
    task = classification(3)
    matrix = [[9, 0, 0], [0, 0, 7], [0, 0, 0]]
    picture = task.pictures({"confusion_matrix": matrix})["confusion_matrix"]
    assert picture.dtype == np.uint8
    margin, cell = 60, 160
    corners = picture[margin + 4 :: cell, margin + 4 :: cell].mean(-1) < 128
    assert corners.tolist() == [
        [True, False, False],
        [False, False, True],
        [False, False, False],
    ]


def test_better():
    loss, accuracy = Goal("loss", higher=False), Goal("accuracy", higher=True)
    assert loss.improves(1.0, 2.0) and not loss.improves(2.0, 1.0)
    assert accuracy.improves(2.0, 1.0)
    assert not accuracy.improves(1.0, 1.0)
    nan = float("nan")
    assert not loss.improves(nan, None)
    assert not loss.improves(nan, 1.0)
    assert loss.improves(1.0, None)


def test_goals_are_metrics_that_rank():
    task = classification(10)
    assert goal(task, "f", "loss") == Goal("loss", higher=False)
    assert goal(task, "f", "macro_f1") == Goal("macro_f1", higher=True)
    known = "loss, accuracy, top5_accuracy, balanced_accuracy, macro_f1"
    for name in ("f1", "recall"):
        with pytest.raises(UserError, match=f"f = '{name}': expected {known}"):
            goal(task, "f", name)


def test_a_set_without_classes_cannot_be_classified():
    with pytest.raises(UserError, match="number of classes of the data set is"):
        build_task(Config(), (8, 8, 1), {})
