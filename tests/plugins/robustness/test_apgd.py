"""Auto-PGD, against its paper's algorithm written down with PyTorch."""

import json
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrain.plugins.adversarial.attacks import Ball
from jaxtrain.plugins.robustness.apgd import (
    Apgd,
    checkpoints,
    likeliest_others,
    targeted_dlr,
)
from tests.helpers import attacked
from tests.helpers.command import float64
from tests.helpers.processes import ROOT

STORED = json.loads((ROOT / "tests" / "stored" / "torch" / "apgd.json").read_text())


def climb(name: str, norm: Any, rows: Any = slice(None)) -> tuple[Any, np.ndarray]:
    """Return the last state of the attack, and its step lengths (STEPS, N)."""
    values = {n: jnp.asarray(x) for n, x in attacked.arrays().items()}
    images, labels, targets = (values[n][rows] for n in ("images", "labels", "targets"))

    def judge(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        logits = attacked.logits(jnp, x, values["first"], values["last"])
        chosen = jnp.take_along_axis(logits, labels[:, None], 1)[:, 0]
        losses = jax.nn.logsumexp(logits, -1) - chosen
        if name == "dlr":
            losses = targeted_dlr(logits, labels, targets)
        return losses, logits.argmax(-1) != labels

    ball = Ball(epsilon=attacked.EPSILONS[norm], norm=norm)
    apgd = Apgd(ball=ball, steps=attacked.STEPS)
    at = jax.jit(partial(apgd.begin, judge))(jnp.asarray(attacked.starts(norm))[rows])
    advance, sizes = jax.jit(partial(apgd.advance, judge, images)), []
    for _ in range(attacked.STEPS):
        sizes.append(np.asarray(at.size))
        at = advance(at)
    return jax.device_get(at), np.stack(sizes)


@pytest.mark.parametrize(
    ("name", "norm"),
    [
        ("ce", "linf"),
        ("dlr", "l2"),
        pytest.param("ce", "l2", marks=pytest.mark.slow),
        pytest.param("dlr", "linf", marks=pytest.mark.slow),
    ],
)
def test_each_image_takes_the_steps_of_the_paper(name: str, norm: str):
    stored = STORED[f"{name}, {norm}"]
    with float64(enable=True):
        at, sizes = climb(name, norm)
    # In float64 no sign and no comparison differs; each step adds some 1e-16. Along the
    # gradient some images are at the maximum after 28 steps, where rounding says
    # whether the loss has risen.
    known = attacked.STEPS if norm == "linf" else 29
    found, expected = sizes.T[:, :known], np.asarray(stored["sizes"])[:, :known]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(at.best, stored["best"], atol=1e-9)
    np.testing.assert_allclose(at.best_loss, stored["loss"], rtol=1e-9)
    # Both reasons to halve a step are met, and some images go on with whole ones.
    halvings = np.log2(sizes[0] / sizes[-1])
    assert halvings.min() < halvings.max() and halvings.max() > 3


def test_it_ends_with_the_first_image_that_errs():
    with float64(enable=True):
        at, _ = climb("ce", "linf", slice(5))
        alone, _ = climb("ce", "linf", slice(2, 3))
    # What an image comes to does not depend on the others.
    np.testing.assert_allclose(alone.best[0], at.best[2], atol=1e-12)
    fooled = at.errs
    assert fooled.any()
    np.testing.assert_array_equal(at.answer[~fooled], at.best[~fooled])


def test_checkpoints_are_those_of_the_paper():
    expected = [0, 22, 41, 57, 70, 80, 87, 93, 99]
    assert checkpoints(100) == expected
    assert checkpoints(10) == [0, 3, 5, 6, 7, 8, 9, 10]


def test_targets_are_the_likeliest_wrong_classes():
    logits = jnp.asarray([[3.0, 1.0, 2.0, 0.0], [0.0, 1.0, 2.0, 3.0]])
    found = likeliest_others(logits, jnp.asarray([0, 1]), 3)
    np.testing.assert_array_equal(found, [[2, 3], [1, 2], [3, 0]])
    # By hand: -(3 - 2) / (3 - (1 + 0) / 2), -(1 - 3) / (3 - (1 + 0) / 2).
    ratios = targeted_dlr(logits, jnp.asarray([0, 1]), found[0])
    np.testing.assert_allclose(ratios, [-1 / 2.5, 2 / 2.5], rtol=1e-6)
    scaled = targeted_dlr(100 * logits, jnp.asarray([0, 1]), found[0])
    np.testing.assert_allclose(scaled, ratios, rtol=1e-6)
