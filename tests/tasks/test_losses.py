"""The binary loss against its formula in float64, and what it goes with."""

from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrain.config import ClassificationConfig, Config, TrainConfig
from jaxtrain.errors import UserError
from jaxtrain.tasks.balance import relative_weights
from jaxtrain.tasks.build import build_task
from jaxtrain.tasks.classification import MixedLabels
from jaxtrain.tasks.losses import binary_cross_entropy
from jaxtrain.tasks.task_metrics import sums_of
from jaxtrain.trainer.training_facts import class_counts
from tests.helpers.rows import each_row

CLASSES, COUNTS = 5, (4, 0, 1, 2, 3)
RNG = np.random.default_rng(0)
LOGITS = (5 * RNG.normal(size=(6, CLASSES))).astype(np.float32)
LABELS = np.array([0, 1, 2, 3, 4, 0], np.int32)
PARTNERS = LABELS[[1, 0, 3, 2, 5, 4]]
MIXED = MixedLabels(jnp.asarray(LABELS), jnp.asarray(PARTNERS), jnp.full(6, 0.85))


def build(**options: Any) -> Any:
    facts = {"num_classes": CLASSES, "class_counts": lambda: np.array(COUNTS)}
    task = ClassificationConfig(**{"loss": "binary_cross_entropy", **options})
    return build_task(Config(task=task), (8, 8, 1), facts)


def formula(targets: np.ndarray) -> np.ndarray:
    """Return the mean over the classes of -t log p - (1 - t) log(1 - p), float64."""
    logits = LOGITS.astype(float)
    log_p, log_not_p = -np.log1p(np.exp(-logits)), -np.log1p(np.exp(logits))
    return -(targets * log_p + (1 - targets) * log_not_p).mean(-1)


def smooth(labels: np.ndarray, smoothing: float) -> np.ndarray:
    return (1 - smoothing) * np.eye(CLASSES)[labels] + smoothing / CLASSES


@each_row("smoothing", [0.0, 0.1])
@each_row("threshold", [None, 0.2])
@each_row("weights", [None, (1.0, 2.0, 0.0, 4.0, 1.0)])
@each_row("mixed", [False, True])
def test_it_is_that_of_the_soft_targets(
    smoothing: float, threshold: float | None, weights: Any, mixed: bool
):
    """The threshold is that of the sum: 0.15 and smoothed 0.155 are below 0.2."""
    share = 0.85 if mixed else 1.0
    targets = share * smooth(LABELS, smoothing)
    targets += (1 - share) * smooth(PARTNERS, smoothing)
    if threshold is not None:
        targets = (targets > threshold).astype(float)
    relative = np.ones(CLASSES)
    if weights is not None:
        relative = relative_weights(weights, np.array(COUNTS))
    # Each class by its share and its weight: of the joint loss, or else of its own.
    expected = np.zeros(6)
    for part, labels in ((share, LABELS), (1 - share, PARTNERS)):
        own = targets if threshold is not None else smooth(labels, smoothing)
        expected += part * relative[labels] * formula(own)
    options = {"label_smoothing": smoothing, "target_threshold": threshold}
    task = build(**options, class_weights=weights)
    target = MIXED if mixed else jnp.asarray(LABELS)
    found = task.loss(jnp.asarray(LOGITS), target, training=True)
    # A few roundings of float32.
    np.testing.assert_allclose(found, expected, rtol=2e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_weighs_the_classes_of_a_mixed_example_alike(smoothing: float):
    weights = (1.0, 2.0, 0.0, 4.0, 1.0)
    task = build(loss="cross_entropy", label_smoothing=smoothing, class_weights=weights)
    relative = relative_weights(weights, np.array(COUNTS))
    logits = LOGITS.astype(float)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = sum(
        part * relative[labels] * -(smooth(labels, smoothing) * log_p).sum(-1)
        for part, labels in ((0.85, LABELS), (0.15, PARTNERS))
    )
    found = task.loss(jnp.asarray(LOGITS), MIXED, training=True)
    np.testing.assert_allclose(found, expected, rtol=2e-6)


def test_both_of_a_pair_count_whole_above_the_threshold():
    halves = MIXED._replace(weight=jnp.full(6, 0.5))
    targets = np.eye(CLASSES)[LABELS] + np.eye(CLASSES)[PARTNERS]
    found = build(target_threshold=0.2).loss(jnp.asarray(LOGITS), halves, training=True)
    np.testing.assert_allclose(found, formula(targets), rtol=2e-6)


def test_half_precision_is_widened_first():
    logits = jnp.asarray(LOGITS, jnp.bfloat16)
    targets = jnp.asarray(smooth(LABELS, 0.1), jnp.float32)
    found = binary_cross_entropy(logits, targets)
    assert found.dtype == jnp.float32
    np.testing.assert_array_equal(
        found, binary_cross_entropy(logits.astype(jnp.float32), targets)
    )


def test_labels_may_be_unknown_within_a_split():
    """A split without labels is known by its first and its last example."""
    build().check_targets(np.array([0, -1, 2]), "split 'train' of own:x")
    with pytest.raises(UserError, match="split 'test' of own:x has no labels"):
        build().check_targets(np.array([-1, -1, -1]), "split 'test' of own:x")


def values_of(task: Any, logits: np.ndarray, labels: np.ndarray) -> Any:
    ones = jnp.ones(len(labels), jnp.int32)
    return task.values(jax.device_get(sums_of(task, logits, labels, ones)))


@each_row("loss", ["cross_entropy", "binary_cross_entropy"])
def test_examples_of_unknown_class_do_not_count(loss: str):
    """As PyTorch's and torchmetrics' `ignore_index = -1`, but for the mean of a step.

    Like images without a known label of the other tasks they have a loss of 0.
    """
    task = build(loss=loss)
    labels, known = LABELS.copy(), np.arange(6) % 3 > 0
    labels[~known] = -1
    whole = np.asarray(task.loss(LOGITS, LABELS, training=True))
    found = task.loss(LOGITS, jnp.asarray(labels), training=True)
    np.testing.assert_allclose(found, np.where(known, whole, 0), rtol=1e-6)
    # A mixture is known if all that has a share is.
    partners = labels[::-1].copy()
    partners_known = known & known[::-1]
    for weight, counts in ((0.7, partners_known), (1.0, known)):
        given = [jnp.asarray(x) for x in (labels, partners, np.full(6, weight))]
        mixed = task.loss(LOGITS, MixedLabels(*given), training=True)
        assert ((np.asarray(mixed) > 0) == counts).all()
    values = values_of(task, LOGITS, labels)
    assert values == values_of(task, LOGITS[known], labels[known])
    assert values["num_examples"] == 4 == np.sum(values["confusion_matrix"])


def test_class_weights_count_no_unknown_class():
    train = mock.MagicMock(facts={"num_classes": 3})
    train.__len__.return_value = 5
    train.strata.return_value = labels = np.array([0, -1, 2, 2, 0])
    train.targets = labels.__getitem__
    config = Config(train=TrainConfig(steps=1))
    assert class_counts(config, train).tolist() == [2, 0, 2]
