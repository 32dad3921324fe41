"""Losses of the true class, and what makes up for rare ones, against their formulas."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrain.config import ClassificationConfig, Config
from jaxtrain.errors import UserError
from jaxtrain.tasks.balance import relative_weights
from jaxtrain.tasks.build import build_task
from jaxtrain.tasks.classification import MixedLabels
from tests.helpers.rows import each_row

CLASSES, COUNTS = 5, (400, 0, 10, 2000, 30)
RNG = np.random.default_rng(0)
LOGITS = (3 * RNG.normal(size=(6, CLASSES))).astype(np.float32)
LABELS = np.array([0, 1, 2, 3, 4, 0], np.int32)
PARTNERS = LABELS[[1, 0, 3, 2, 5, 4]]
Of = Callable[[np.ndarray, np.ndarray], np.ndarray]


def build(**options: Any) -> Any:
    facts = {"num_classes": CLASSES, "class_counts": lambda: np.array(COUNTS)}
    return build_task(Config(task=ClassificationConfig(**options)), (8, 8, 1), facts)


def probabilities(logits: np.ndarray = LOGITS) -> np.ndarray:
    powers = np.exp(logits.astype(float))
    return powers / powers.sum(-1, keepdims=True)


def bootstrapped(p: np.ndarray, labels: np.ndarray, beta: float) -> np.ndarray:
    targets = beta * np.eye(CLASSES)[labels]
    targets += (1 - beta) * np.eye(CLASSES)[p.argmax(-1)]
    return -(targets * np.log(p)).sum(-1)


def reverse(p: np.ndarray, labels: np.ndarray, weight: float) -> np.ndarray:
    """Equations 6 and 7 of the paper, the logarithm of 0 being -4."""
    true = np.eye(CLASSES)[labels]
    log_true = np.where(true > 0, 0.0, -4.0)
    own = p[np.arange(len(p)), labels]
    return -np.log(own) - weight * (p * log_true).sum(-1)


def own(of: Of) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    return lambda p, labels: of(p[np.arange(len(p)), labels], labels)


FORMULAS: dict[str, tuple[dict[str, Any], Of]] = {
    "focal": (
        {"loss": "focal"},
        own(lambda p, _: -((1 - p) ** 2) * np.log(p)),
    ),
    "poly": (
        {"loss": "poly"},
        own(lambda p, _: -np.log(p) + (1 - p)),
    ),
    "symmetric": (
        {"loss": "symmetric"},
        lambda p, labels: reverse(p, labels, 10.0),
    ),
    "bootstrap": (
        {"loss": "bootstrap"},
        lambda p, labels: bootstrapped(p, labels, 0.8),
    ),
}


@each_row("name", FORMULAS)
def test_losses_are_those_of_the_papers(name: str):
    options, formula = FORMULAS[name]
    task, p = build(**options), probabilities()
    found = task.loss(jnp.asarray(LOGITS), jnp.asarray(LABELS), training=True)
    # Float32 of numbers up to 20.
    np.testing.assert_allclose(found, formula(p, LABELS), rtol=2e-5, atol=1e-6)
    mixed = MixedLabels(jnp.asarray(LABELS), jnp.asarray(PARTNERS), jnp.full(6, 0.85))
    found = task.loss(jnp.asarray(LOGITS), mixed, training=True)
    expected = 0.85 * formula(p, LABELS) + 0.15 * formula(p, PARTNERS)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)
    found = task.loss(jnp.asarray(LOGITS), jnp.asarray(LABELS), training=False)
    np.testing.assert_allclose(found, -np.log(p[np.arange(6), LABELS]), rtol=2e-5)


@each_row("name", FORMULAS)
def test_gradients_are_finite_where_the_model_is_sure(name: str):
    task = build(**FORMULAS[name][0])
    sure = 200 * jnp.eye(CLASSES)[jnp.asarray([0, 1])]

    def total(logits: jax.Array) -> jax.Array:
        return task.loss(logits, jnp.asarray([0, 2]), training=True).sum()

    assert np.isfinite(jax.jit(jax.grad(total))(sure)).all()


def test_logits_are_adjusted_by_the_shares_in_training_alone():
    task = build(logit_adjustment=0.5)
    shares = np.maximum(np.array(COUNTS), 0.5) / sum(COUNTS)
    p = probabilities(LOGITS + 0.5 * np.log(shares))
    found = task.loss(jnp.asarray(LOGITS), jnp.asarray(LABELS), training=True)
    np.testing.assert_allclose(found, -np.log(p[np.arange(6), LABELS]), rtol=2e-5)
    p = probabilities()
    found = task.loss(jnp.asarray(LOGITS), jnp.asarray(LABELS), training=False)
    np.testing.assert_allclose(found, -np.log(p[np.arange(6), LABELS]), rtol=2e-5)


def test_effective_numbers_weigh_rare_classes_more_but_not_without_end():
    counts = np.array(COUNTS)
    weights = relative_weights("effective_number", counts)
    effective = (1 - 0.999**counts) / (1 - 0.999)
    seen = counts > 0
    ratio = weights[seen] * effective[seen]
    np.testing.assert_allclose(ratio, ratio[0])
    assert weights[1] == 0
    np.testing.assert_allclose((weights * counts).sum() / counts.sum(), 1)
    balanced = relative_weights("balanced", counts)
    assert balanced[2] / balanced[3] == pytest.approx(200)
    assert weights[2] / weights[3] < 100


@each_row(
    ("options", "message"),
    [
        ({"loss": "focal", "label_smoothing": 0.1}, "probability of the true class"),
        ({"logit_adjustment": 1.0, "class_weights": "balanced"}, "class imbalance"),
        ({"logit_adjustment": 1.0, "loss": "binary_cross_entropy"}, "softmax"),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        build(**options)
