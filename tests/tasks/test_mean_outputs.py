"""Mean predictions of several models."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from jaxtrain import tasks
from jaxtrain.tasks.decoder import OutputDecoder, OutputFacts
from jaxtrain.tasks.mean_outputs import mean_sigmoid, mean_softmax

# Sums of a few numbers of about 1 in float32, in another order.
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6}
OUTPUTS = 3 * np.random.default_rng(0).standard_normal((4, 5, 3)).astype(np.float32)

SCALE = {"mean": "0", "std": "1"}


def decoder(task: str, options: Any = None, **facts: Any) -> OutputDecoder:
    known = {"class_names": None, "column_names": None, **facts}
    outputs = jax.ShapeDtypeStruct((1, 3), np.float32)
    made = OutputFacts(
        task=task,
        options=options or {},
        image_shape=(8, 8, 1),
        outputs=outputs,
        chosen={},
        **known,
    )
    return tasks.kind(task).decoder(made)


def refusal(task: str, options: Any = None) -> str | None:
    return decoder(task, options).refuses_mean()


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
    told = refusal("regression", {**SCALE, "loss": "gaussian"})
    assert told is not None and "mixture" in told
    assert refusal("regression", {**SCALE, "loss": "huber"}) is None
    told = refusal("embedding")
    assert told is not None and "a different embedding space" in told
    assert refusal("detection") is not None
    own_task = refusal("path/to/file.py:Own")
    assert own_task is not None and "does not define" in own_task


def test_the_mean_is_of_what_the_decoder_calls_probabilities():
    """Of models of one task, whose decoder tells how to read their outputs."""
    stacked = jnp.asarray(OUTPUTS)
    for task in ("classification", "multilabel"):
        made = decoder(task, class_names=("ant", "bee", "cat"))
        assert made.refuses_mean() is None
        found = made.probabilities(made.mean_outputs(stacked))
        expected = made.probabilities(stacked).mean(0)
        np.testing.assert_allclose(found, expected, **CLOSE)
