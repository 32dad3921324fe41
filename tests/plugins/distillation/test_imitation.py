"""How far outputs are from a teacher's, against the formulas in NumPy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrain.errors import UserError
from jaxtrain.plugins.distillation import imitation
from jaxtrain.plugins.distillation.imitations import find_imitation
from jaxtrain.tasks.base import Task
from jaxtrain.tasks.classification import Classification
from jaxtrain.tasks.regression import Regression
from tests.helpers.rows import each_row

RNG = np.random.default_rng(3)
OURS, THEIRS = (3 * RNG.standard_normal((4, 5, 6)).astype(np.float32) for _ in "ab")
CLASSES, LABELS = (
    jax.jit(f, static_argnames=("temperature", "hard"))
    for f in (imitation.imitate_classes, imitation.imitate_labels)
)


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def kl(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    return np.sum(p * np.log(p / q), -1)


@each_row("temperature", [None, 1.0, 2.5])
def test_classes_are_imitated_by_their_softened_probabilities(temperature: Any):
    t = temperature or 4.0
    ours, theirs = (x.astype(np.float64) for x in (OURS, THEIRS))
    expected = t * t * kl(softmax(theirs / t), softmax(ours / t))
    # Of images, and of maps, of which it is the mean over the pixels.
    for a, b, wanted in (
        (OURS[:, 0], THEIRS[:, 0], expected[:, 0]),
        (OURS, THEIRS, expected.mean(1)),
    ):
        found = CLASSES(a, b, temperature=temperature, hard=False)
        # Sums of some tens of float32.
        np.testing.assert_allclose(found, wanted, rtol=1e-4)
    same = CLASSES(OURS, OURS, temperature=temperature, hard=False)
    # 0 but for rounding, of probabilities times differences of logarithms.
    np.testing.assert_allclose(same, 0, atol=1e-5)


def test_hard_answers_are_the_first_class_and_the_surer_label():
    ours = OURS[:, 0].astype(np.float64)
    first = THEIRS[:, 0].argmax(-1)
    expected = -np.log(softmax(ours)[np.arange(4), first])
    found = CLASSES(OURS[:, 0], THEIRS[:, 0], temperature=None, hard=True)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    p, there = 1 / (1 + np.exp(-ours)), THEIRS[:, 0] > 0
    expected = -np.where(there, np.log(p), np.log(1 - p)).mean(-1)
    found = LABELS(OURS[:, 0], THEIRS[:, 0], temperature=None, hard=True)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@each_row("temperature", [None, 1.0, 2.5])
def test_labels_are_imitated_each_by_itself(temperature: Any):
    t = temperature or 4.0
    p, q = (1 / (1 + np.exp(-x[:, 0].astype(np.float64) / t)) for x in (THEIRS, OURS))
    both = [np.stack([x, 1 - x], -1) for x in (p, q)]
    expected = t * t * kl(*both).mean(-1)
    found = LABELS(OURS[:, 0], THEIRS[:, 0], temperature=temperature, hard=False)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_numbers_are_imitated_by_their_square_differences():
    found = imitation.imitate_numbers(
        jnp.asarray(OURS[:, 0]), jnp.asarray(THEIRS[:, 0])
    )
    expected = np.square(OURS[:, 0].astype(float) - THEIRS[:, 0]).mean(-1)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@each_row(
    ("options", "how", "told"),
    [
        ({}, {"temperature": 2.0, "hard": False}, "have no effect on task = 'regr"),
        ({}, {"temperature": None, "hard": True}, "have no effect on task = 'regr"),
        ({"loss": "gaussian"}, {"temperature": None, "hard": False}, "mse, l1 or h"),
    ],
)
def test_numbers_have_no_probabilities(options: Any, how: Any, told: str):
    task = Regression((8, 8, 1), {}, mean=(0.0,), std=(1.0,), **options)
    imitate = find_imitation(task)
    assert imitate is not None
    with pytest.raises(UserError, match=told):
        imitate(OURS[:, 0, :2], THEIRS[:, 0, :2], **how)


class Halved(Classification):
    """A task with an imitation of its own."""

    def imitation(
        self, outputs: Any, teacher: Any, *, temperature: float | None, hard: bool
    ) -> jax.Array:
        return 0.5 * imitation.imitate_classes(outputs, teacher, temperature, hard)


class Inherited(Classification):
    """A task with that of its class."""


def test_the_imitation_of_a_task_comes_before_that_of_its_class():
    def found(kind: type[Classification]) -> Any:
        imitate = find_imitation(kind((8, 8, 1), {"num_classes": 6}))
        assert imitate is not None
        return imitate(OURS[:, 0], THEIRS[:, 0], temperature=2.0, hard=False)

    expected = CLASSES(OURS[:, 0], THEIRS[:, 0], temperature=2.0, hard=False)
    np.testing.assert_allclose(found(Inherited), expected, rtol=1e-6)
    np.testing.assert_allclose(found(Halved), 0.5 * expected, rtol=1e-6)
    assert find_imitation(Task()) is None
