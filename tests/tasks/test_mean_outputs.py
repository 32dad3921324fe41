"""Mean predictions of several models."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy import special

from jaxtrain import tasks
from jaxtrain.tasks.mean_outputs import mean_sigmoid, mean_softmax

# Sums of a few numbers of about 1 in float32, in another order.
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6}
OUTPUTS = 3 * np.random.default_rng(0).standard_normal((4, 5, 3)).astype(np.float32)


def test_the_mean_is_of_probabilities():
    found = special.softmax(mean_softmax(jnp.asarray(OUTPUTS)), -1)
    np.testing.assert_allclose(found, special.softmax(OUTPUTS, -1).mean(0), **CLOSE)
    found = special.expit(mean_sigmoid(jnp.asarray(OUTPUTS)))
    np.testing.assert_allclose(found, special.expit(OUTPUTS).mean(0), **CLOSE)


def test_logits_of_sure_models_stay_finite():
    """Probabilities of them are 0 and 1 in float32."""
    sure = jnp.array([[[1000.0, -1000.0]], [[1000.0, -1000.0]]])
    assert np.isfinite(mean_softmax(sure)).all()
    np.testing.assert_allclose(mean_sigmoid(sure), [[1000.0, -1000.0]])


def test_tasks_without_a_mean_say_why():
    told = tasks.kind("regression").refuses_mean({"loss": "gaussian"})
    assert told is not None and "mixture" in told
    assert tasks.kind("regression").refuses_mean({"loss": "huber"}) is None
    told = tasks.kind("embedding").refuses_mean({})
    assert told is not None and "its own space" in told
    assert tasks.kind("detection").refuses_mean({}) is not None
    own_task = tasks.kind("path/to/file.py:Own").refuses_mean({})
    assert own_task is not None and "not said" in own_task
