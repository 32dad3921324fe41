"""Scores of outliers against SciPy and scikit-learn."""

import jax
import numpy as np
import pytest
import scipy.special
import sklearn.metrics

from jaxtrain.plugins.robustness import outliers

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(0, 6, (400, 5)).astype(np.float32)
PROBABILITIES = scipy.special.softmax(LOGITS.astype(np.float64), axis=-1)


@pytest.mark.parametrize("decimals", [8, 1], ids=["distinct", "ties"])
def test_separation_is_that_of_scikit_learn(decimals: int):
    ours = RNG.normal(1, 1, 300).round(decimals)
    other = RNG.normal(0, 1, 200).round(decimals)
    both, is_ours = np.r_[ours, other], np.r_[np.ones(300), np.zeros(200)]
    found = outliers.separation(ours, other)
    auroc = sklearn.metrics.roc_auc_score(is_ours, both)
    assert found["auroc"] == pytest.approx(auroc)
    aupr = sklearn.metrics.average_precision_score(is_ours, both)
    assert found["aupr_in"] == pytest.approx(aupr)
    aupr = sklearn.metrics.average_precision_score(1 - is_ours, -both)
    assert found["aupr_out"] == pytest.approx(aupr)
    fpr, tpr, _ = sklearn.metrics.roc_curve(is_ours, both, drop_intermediate=False)
    assert found["fpr_at_95_tpr"] == pytest.approx(fpr[np.argmax(tpr >= 0.95)])


def test_scores_of_outliers_are_their_formulas():
    found = jax.device_get(jax.jit(outliers.ordinary)(LOGITS))
    energy = scipy.special.logsumexp(LOGITS.astype(np.float64), axis=-1)
    np.testing.assert_allclose(found["energy"], energy, rtol=1e-5)
    np.testing.assert_allclose(found["max_softmax"], PROBABILITIES.max(-1), rtol=1e-5)
