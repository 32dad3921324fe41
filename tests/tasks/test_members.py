"""The mean of the members of an ensemble, and how far they disagree."""

import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from jaxtrain.tasks import members

# Sums of a few numbers of about 1 in float32, in another order.
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6}
OUTPUTS = 3 * np.random.default_rng(0).standard_normal((4, 5, 3)).astype(np.float32)


def test_the_mean_is_of_probabilities():
    found = special.softmax(members.mean_softmax(jnp.asarray(OUTPUTS)), -1)
    np.testing.assert_allclose(found, special.softmax(OUTPUTS, -1).mean(0), **CLOSE)
    found = special.expit(members.mean_sigmoid(jnp.asarray(OUTPUTS)))
    np.testing.assert_allclose(found, special.expit(OUTPUTS).mean(0), **CLOSE)


def test_logits_of_sure_members_stay_finite():
    """Probabilities of them are 0 and 1 in float32."""
    sure = jnp.array([[[1000.0, -1000.0]], [[1000.0, -1000.0]]])
    assert np.isfinite(members.mean_softmax(sure)).all()
    np.testing.assert_allclose(members.mean_sigmoid(sure), [[1000.0, -1000.0]])


def test_disagreement_is_counted_by_hand():
    weights = np.array([1, 1, 1, 0, 1])
    found = members.class_disagreement(jnp.asarray(OUTPUTS), jnp.asarray(weights))
    first, pairs = OUTPUTS.argmax(-1), list(itertools.combinations(range(4), 2))
    differing = np.mean([first[i] != first[j] for i, j in pairs], 0)
    probabilities = special.softmax(OUTPUTS.astype(float), -1)
    mean_entropy = special.entr(probabilities).sum(-1).mean(0)
    information = special.entr(probabilities.mean(0)).sum(-1) - mean_entropy
    wanted = {"disagreement": differing, "mutual_information": information}
    assert found.keys() == wanted.keys()
    for name, x in wanted.items():
        total, number = found[name]
        assert number == 4
        np.testing.assert_allclose(total, (x * weights).sum(), **CLOSE)


def test_members_that_agree_do_not_disagree():
    same = jnp.broadcast_to(jnp.asarray(OUTPUTS[:1]), OUTPUTS.shape)
    found = members.class_disagreement(same, jnp.ones(5))
    assert found["disagreement"][0] == 0
    assert float(found["mutual_information"][0]) == pytest.approx(0, abs=1e-5)


def test_labels_disagree_at_a_half():
    weights = np.ones((5, 3))
    found = members.label_disagreement(jnp.asarray(OUTPUTS), jnp.asarray(weights))
    has, pairs = OUTPUTS > 0, list(itertools.combinations(range(4), 2))
    differing = np.mean([has[i] != has[j] for i, j in pairs], 0)
    np.testing.assert_allclose(found["disagreement"], [differing.sum(), 15], **CLOSE)
