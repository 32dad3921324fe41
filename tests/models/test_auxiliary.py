"""Auxiliary heads: what they add to a step of training, and to nothing else."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from safetensors.numpy import load_file

from jaxtrain import models
from jaxtrain.config import Config, InceptionConfig, SGDConfig
from jaxtrain.errors import UserError
from jaxtrain.inference import folder
from jaxtrain.inference.model import TrainedModel
from jaxtrain.models.auxiliary import WithAuxiliary
from jaxtrain.tasks.build import build_task
from jaxtrain.tasks.training_losses import losses_and_metrics
from jaxtrain.weights.stored import abstract_weights
from tests.helpers.auxiliary import TwoHeads
from tests.helpers.described import describe
from tests.helpers.numerics import close
from tests.helpers.trial import IMAGES, LABELS, SHAPE, Trial

WEIGHT = 0.3  # The default of the model.
SGD = SGDConfig(learning_rate=0.1, momentum=0.0, weight_decay=0.0)


@pytest.fixture(autouse=True)
def two_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        models.MODELS.references, "two_heads", f"{TwoHeads.__module__}:TwoHeads"
    )


def by_hand(params: Any, smoothing: float = 0.0) -> tuple[jax.Array, Any]:
    """Return the loss that the first step lowers, and (what heads add, accuracy)."""
    x, labels = jnp.asarray(IMAGES[0], params["linear1"]["bias"].dtype), LABELS[0]
    losses, logits = [], jnp.zeros(())
    for name in ("1", "2", None):
        if name is not None:
            layer = params[f"linear{name}"]
            x = jnp.tanh(x @ layer["kernel"] + layer["bias"])
        head = params[f"aux{name}"]["head"] if name else params["head"]
        logits = x.mean((1, 2)) @ head["linear"]["kernel"] + head["linear"]["bias"]
        targets = jnp.eye(logits.shape[1])[labels]
        targets = (1 - smoothing) * targets + smoothing / logits.shape[1]
        losses.append(optax.softmax_cross_entropy(logits, targets).mean())
    added = WEIGHT * (losses[0] + losses[1])
    return losses[2] + added, (added, (logits.argmax(-1) == labels).mean())


@pytest.mark.slow
def test_a_step_lowers_the_sum_of_the_losses():
    """With micro-batches, smoothing, averages and a guard against spikes."""
    with jax.enable_x64():
        trial = Trial(
            name="two_heads",
            optimizer=SGD,
            policy="fp64",
            accumulate_steps=2,
            label_smoothing=0.1,
            ema_decay=0.9,
            spike_sigma=3.0,
        )
        params = trial.state.params
        graded = jax.jit(jax.value_and_grad(by_hand, has_aux=True), static_argnums=1)
        (loss, (added, accuracy)), grads = graded(params, 0.1)
        metrics = trial(IMAGES[:1], LABELS[:1])
        np.testing.assert_allclose(metrics["loss"][0], loss, 1e-12)
        np.testing.assert_allclose(metrics["auxiliary_loss"][0], added, 1e-12)
        np.testing.assert_allclose(metrics["accuracy"][0], accuracy, 1e-6)
        expected = jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)
        close(trial.state.params, expected, rtol=0, atol=1e-12)


def test_heads_of_another_shape_are_refused():
    task = build_task(Config(), SHAPE, {"num_classes": 4})
    outputs = WithAuxiliary(jnp.zeros((2, 4)), (jnp.zeros((2, 3)),), WEIGHT)
    with pytest.raises(UserError, match=r"shape \(2, 3\): expected"):
        losses_and_metrics(task, outputs, jnp.zeros(2, int))


@pytest.mark.slow
def test_a_folder_tells_timm_of_the_head(tmp_path: Path):
    about = describe(
        InceptionConfig(name="inception_v3", aux_weight=0.4),
        (299, 299, 3),
        class_names=tuple("abcd"),
        crop_pct=0.875,
        interpolation="bicubic",
    )
    params, model_state = jax.tree.map(
        lambda x: np.zeros(x.shape, x.dtype), abstract_weights(about)
    )
    folder.write(TrainedModel(about, params, model_state, {}), tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["architecture"] == "inception_v3"
    assert config["model_args"] == {"aux_logits": True}
    named = load_file(tmp_path / "model" / "model.safetensors")
    assert any(key.startswith("AuxLogits") for key in named)
