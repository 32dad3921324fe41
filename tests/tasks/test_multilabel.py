"""Several labels an image: losses against formulas, metrics against scikit-learn."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import metrics as oracle

from jaxtrain.data.target_changes import Mixing
from jaxtrain.errors import UserError
from jaxtrain.tasks import label_metrics
from jaxtrain.tasks.base import with_chosen
from jaxtrain.tasks.multilabel import Multilabel
from jaxtrain.tasks.task_metrics import sums_of
from tests.helpers.command import float64
from tests.helpers.rows import each_row

NAMES = ("a", "b", "c", "d")
SIGMOID = jax.jit(jax.nn.sigmoid)


def task_of(targets: np.ndarray | None = None, **options: Any) -> Multilabel:
    facts: dict[str, Any] = {"target_names": NAMES}
    if targets is not None:
        facts["training_targets"] = lambda: targets
    return Multilabel((8, 8, 1), facts, **options)


def batch(num: int = 200, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return logits, many of them equal, and labels, some of them missing."""
    rng = np.random.default_rng(seed)
    label = (rng.random((num, 4)) < (0.5, 0.2, 0.1, 0.9)).astype(np.float64)
    score = np.round(rng.normal(size=(num, 4)) + label, 1)
    label[rng.random((num, 4)) < 0.1] = np.nan
    return score, label


# --- losses --------------------------------------------------------------------------


def formula(
    score: np.ndarray, label: np.ndarray, weights: np.ndarray, **how: float
) -> np.ndarray:
    """Ridnik et al. 2021, equations 4 to 7, of each image, as they are written."""
    p = 1 / (1 + np.exp(-score))
    q = np.maximum(p - how.get("margin", 0), 0)
    absent = -(q ** how.get("gamma_negative", 0)) * np.log(1 - q)
    return np.nanmean(-weights * label * np.log(p) + (1 - label) * absent, axis=1)


@each_row(
    "options",
    [
        {},
        {"positive_weights": (1.0, 2.0, 0.5, 0.0)},
        {"loss": "asymmetric"},
        {"loss": "asymmetric", "positive_weights": (1.0, 2.0, 0.5, 3.0)},
    ],
)
def test_losses_and_gradients_are_those_of_the_formula(options: dict[str, Any]):
    score, label = batch()
    label[:, 0] = np.where(np.isnan(label[:, 0]), 0.3, label[:, 0])  # mixed
    how = {}
    if options.get("loss") == "asymmetric":
        how = {"gamma_negative": 4.0, "margin": 0.05}
    weights = np.array(options.get("positive_weights", [1.0] * 4))
    expected = formula(score, label, weights, **how)
    with float64(True):
        task = task_of(np.nan_to_num(label).round(), **options)

        def loss(x: jax.Array) -> jax.Array:
            return task.loss(x, jnp.asarray(label), training=True)

        found = loss(jnp.asarray(score))
        gradient = jax.grad(lambda x: loss(x).sum())(jnp.asarray(score))
        found, gradient = np.asarray(found), np.asarray(gradient)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    step = 1e-6
    differences = np.stack(
        [
            formula(score + step * row, label, weights, **how)
            - formula(score - step * row, label, weights, **how)
            for row in np.eye(4)
        ],
        axis=1,
    )
    # Central differences are right to about 1e-9 here; where the margin has a corner
    # they are those of neither side.
    smooth = np.abs(1 / (1 + np.exp(-score)) - how.get("margin", -1)) > 1e-4
    error = np.abs(gradient - differences / (2 * step)) * smooth
    assert np.isfinite(gradient).all() and error.max() < 1e-8


def test_balanced_weights_are_the_others_over_those_that_have_it():
    label = np.array([[1, 1, 0, 1], [0, 0, 1, 1], [0, 0, 0, 0], [np.nan, 0, 0, 1]])
    task = task_of(label, positive_weights="balanced")
    score = jnp.full((1, 4), -50.0)  # Only labels that are there cost anything: 50.
    for i, weight in enumerate((2, 3, 3, 1 / 3)):
        one = jnp.full((1, 4), jnp.nan).at[0, i].set(1.0)
        np.testing.assert_allclose(
            task.loss(score, one, training=True), [50 * weight], rtol=1e-6
        )
        np.testing.assert_allclose(
            task.loss(score, one, training=False), [50], rtol=1e-6
        )


def test_labels_that_are_not_known_and_mixtures():
    task = task_of()
    stored = np.array([[1, -1, 0, np.nan], [0, 1, 0, 1]], np.float32)
    target = task.target({"target": jnp.asarray(stored)})
    np.testing.assert_array_equal(target, [[1, np.nan, 0, np.nan], [0, 1, 0, 1]])
    nothing = jnp.full((1, 4), jnp.nan)
    gradient = jax.grad(lambda x: task.loss(x, nothing, training=True).sum())
    assert task.loss(jnp.ones((1, 4)), nothing, training=True) == 0
    assert not gradient(jnp.ones((1, 4))).any()
    pair = jnp.asarray(stored), jnp.asarray(stored[::-1])
    mixed = task.transform_target(pair, Mixing(jnp.array([0.75, 0.5])))
    expected = [[0.75, np.nan, 0, np.nan], [0.5, np.nan, 0, np.nan]]
    np.testing.assert_array_equal(mixed, expected)
    # An example that is mixed with none of another keeps all its labels.
    alone = task.transform_target(pair, Mixing(jnp.array([1.0, 1])))
    np.testing.assert_array_equal(alone, target)


def test_images_without_known_labels_do_not_thin_out_the_loss():
    """Logits of 0 cost log 2, however many images are not labelled."""
    target = jnp.array([[1.0, 0, 1, 0], [jnp.nan] * 4, [0, 1, jnp.nan, jnp.nan]])
    sums = sums_of(task_of(), jnp.zeros((3, 4)), target, jnp.ones(3))
    assert sums["num_examples"] == 2
    np.testing.assert_allclose(sums["loss"] / 2, math.log(2), rtol=1e-6)
    unknown = np.full((3, 4), -1.0)
    with pytest.raises(UserError, match="no image with a known label"):
        task_of().check_targets(unknown, "split 'test' of csv:x")


# --- metrics -------------------------------------------------------------------------


def test_metrics_are_those_of_scikit_learn():
    score, label = batch()
    values = with_chosen(task_of(), {"thresholds": [0.5, 0.6, 0.4, 0.7]}).values(
        {"loss": 0.0, "num_examples": 200},
        {"mean_average_precision": {"score": score, "label": label}},
    )
    found = 1 / (1 + np.exp(-score)) >= (0.5, 0.6, 0.4, 0.7)
    known = ~np.isnan(label)
    ap, auroc, f1 = (
        [function(label[rows, i], given[rows, i]) for i, rows in enumerate(known.T)]
        for function, given in (
            (oracle.average_precision_score, score),
            (oracle.roc_auc_score, score),
            (oracle.f1_score, found),
        )
    )
    np.testing.assert_allclose(values["average_precision"], ap, rtol=1e-12)
    np.testing.assert_allclose(values["auroc"], auroc, rtol=1e-12)
    np.testing.assert_allclose(values["f1"], f1, rtol=1e-12)
    assert math.isclose(values["mean_average_precision"], np.mean(ap))
    assert math.isclose(values["mean_auroc"], np.mean(auroc))
    assert math.isclose(values["macro_f1"], np.mean(f1))
    micro = oracle.f1_score(label[known], found[known])
    assert math.isclose(values["micro_f1"], micro)
    assert values["positives"] == np.sum(label == 1, axis=0).tolist()


def test_thresholds_are_the_best_of_all():
    """Nothing from 0 to 1 gives a label a higher F1 than what validation chooses."""
    score, label = batch(seed=3)
    kept = {"score": score, "label": label}
    values = task_of().values(
        {"loss": 0.0, "num_examples": 200}, {"mean_average_precision": kept}
    )
    for one in np.linspace(0, 1, 501):
        counts = label_metrics.f1_counts(kept, np.full(4, one))
        for ours, other in zip(values["f1"], label_metrics.f1(counts), strict=True):
            assert ours >= other
    assert task_of().choose(values) == {"thresholds": values["thresholds"]}


def test_the_lowest_score_reaches_its_own_threshold():
    """Where all images get the label, predictions in float32 give it to all."""
    for score in np.random.default_rng(0).normal(size=(500, 1, 1)).astype(np.float32):
        (least,) = label_metrics.best_thresholds(
            {"score": score, "label": np.ones((1, 1))}
        )
        assert SIGMOID(score)[0, 0] >= least


def test_a_label_that_no_image_has():
    kept = {"score": np.zeros((5, 2)), "label": np.zeros((5, 2))}
    kept["label"][0, 1] = 1
    assert label_metrics.average_precision(kept, 5) == [None, 0.2]
    assert label_metrics.auroc(kept, 5) == [None, 0.5]
    assert label_metrics.best_thresholds(kept)[0] == 0.5
    mean = label_metrics.mean_of(label_metrics.average_precision)
    assert mean(kept, 5) == 0.2


# --- wrong input ---------------------------------------------------------------------


@each_row(
    ("column", "message"),
    [
        ([0, 1, 2], "the label 'b' is 2 for image 2"),
        ([0, 1, 0.5], "the label 'b' is 0.5 for image 2"),
        ([0, 0, 0], "the label 'b' is always 0 in the 3 training"),
        ([-1, np.nan, -1], "the label 'b' is always missing in the 3 training"),
    ],
)
def test_what_is_no_label(column: list[float], message: str):
    targets = np.tile(np.array([[0.0], [1], [1]]), 4)
    targets[:, 1] = column
    with pytest.raises(UserError, match=message):
        task_of(targets).check_targets(targets, "split 'train' of csv:x")


@each_row(
    ("options", "message"),
    [
        ({"positive_weights": (1.0, 2.0)}, "2 weights: expected 4"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], message: str):
    label = np.array([[0.0] * 4, [1.0] * 4])
    with pytest.raises(UserError, match=message):
        task_of(label, **options)
