"""Losses and evaluation metrics against NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtrain.tasks.losses import cross_entropy

from jaxtrain.tasks import metrics

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(40, 10)).astype(np.float32)
LABELS = RNG.integers(0, 10, 40).astype(np.int32)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return logits - np.log(np.exp(logits.astype(np.float64)).sum(-1, keepdims=True))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_is_that_of_the_smoothed_labels(smoothing: float):
    target = (1 - smoothing) * np.eye(10)[LABELS] + smoothing / 10
    expected = -(target * log_softmax(LOGITS)).sum(-1)
    loss = cross_entropy(jnp.asarray(LOGITS), jnp.asarray(LABELS), smoothing)
    # A few float32 roundings of values around 3.
    np.testing.assert_allclose(loss, expected, rtol=1e-6, atol=1e-6)


def test_loss_of_half_precision_logits_is_float32():
    loss = cross_entropy(jnp.asarray(LOGITS, jnp.bfloat16), jnp.asarray(LABELS))
    assert loss.dtype == jnp.float32


def test_sums_leave_the_padding_out():
    mask = (np.arange(40) < 33).astype(np.int32)
    logits = np.where(mask[:, None], LOGITS, np.nan)  # Padding may hold anything.
    sums = metrics.batch_sums(*map(jnp.asarray, (logits, LABELS, mask)))
    result = metrics.means({k: np.asarray(v) for k, v in sums.items()})
    order = np.argsort(-LOGITS[:33], axis=-1)
    labels = LABELS[:33, None]
    assert result["num_examples"] == 33
    assert result["accuracy"] == (order[:, :1] == labels).mean()
    assert result["top5_accuracy"] == (order[:, :5] == labels).any(-1).mean()
    expected = -np.take_along_axis(log_softmax(LOGITS[:33]), labels, -1).mean()
    np.testing.assert_allclose(result["loss"], expected, rtol=1e-6)


def test_top5_with_fewer_than_five_classes_is_one():
    logits, labels = jnp.asarray(LOGITS[:, :3]), jnp.asarray(LABELS % 3)
    sums = metrics.batch_sums(logits, labels, jnp.ones(40, jnp.int32))
    assert int(sums["top5_accuracy"]) == 40


def test_better_knows_the_direction_of_each_metric_and_nan():
    assert metrics.better("loss", 1.0, 2.0) and not metrics.better("loss", 2.0, 1.0)
    assert metrics.better("accuracy", 2.0, 1.0)
    assert not metrics.better("accuracy", 1.0, 1.0)
    nan = float("nan")
    assert not metrics.better("loss", nan, None)
    assert not metrics.better("loss", nan, 1.0)
    assert metrics.better("loss", 1.0, None)
