"""Losses of embeddings against PyTorch, and against loops over the formulas."""

import json
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxtrain.models.centres import ClassCentres, WithCosines, add_cosines, unit
from jaxtrain.models.layers import Layers
from jaxtrain.plugins.embedding.losses import arcface_losses, contrastive_losses
from jaxtrain.training import precision
from tests.helpers.embeddings import LABEL, NUM_CLASSES, SETTINGS, centres, outputs

STORED = Path(__file__).parents[2] / "stored" / "torch" / "embedding_losses.json"
THEIRS = json.loads(STORED.read_text())
MARGIN, SCALE, TEMPERATURE = SETTINGS.values()


def arcface(x: jax.Array, w: jax.Array) -> jax.Array:
    cosines = jnp.dot(unit(x), unit(w, 0))
    return arcface_losses(cosines, jnp.array(LABEL), margin=MARGIN, scale=SCALE)


def contrastive(x: jax.Array) -> jax.Array:
    return contrastive_losses(x, jnp.array(LABEL), temperature=TEMPERATURE)


def close(found: jax.Array, stored: list) -> None:
    # Float32 against float64; losses are some units, gradients tenths.
    np.testing.assert_allclose(found, np.array(stored), rtol=2e-6, atol=2e-6)


def test_arcface_is_that_of_pytorch_with_its_gradients():
    x, w = jnp.float32(outputs()), jnp.float32(centres())
    theirs = THEIRS["arcface"]
    close(arcface(x, w), theirs["losses"])
    grads = jax.jit(jax.grad(lambda *given: arcface(*given).mean(), (0, 1)))(x, w)
    close(grads[0], theirs["of_outputs"])
    close(grads[1], theirs["of_centres"])


def test_examples_of_unknown_class_have_no_loss_and_are_nobodys_kin():
    x, label = jnp.float32(outputs()), np.array(LABEL)
    some = label.copy()
    some[[0, 2, 4]] = -1
    cosines = jnp.dot(unit(x), unit(jnp.float32(centres()), 0))
    whole, found = (
        arcface_losses(cosines, jnp.array(y), margin=MARGIN, scale=SCALE)
        for y in (label, some)
    )
    np.testing.assert_allclose(found, np.where(some < 0, 0, whole))
    # To be of a class of their own is what unknown ones come to.
    alone = some.copy()
    alone[[0, 2, 4]] = 100, 101, 102
    wanted, found = (
        contrastive_losses(x, jnp.array(y), temperature=TEMPERATURE)
        for y in (alone, some)
    )
    np.testing.assert_array_equal(found, wanted)
    assert (np.asarray(found) > 0).tolist() == [False, True, False, False, False, True]


def test_the_contrastive_loss_is_that_of_pytorch_with_its_gradient():
    x, theirs = jnp.float32(outputs()), THEIRS["contrastive"]
    close(contrastive(x), theirs["losses"])
    close(jax.grad(lambda x: contrastive(x).mean())(x), theirs["of_outputs"])


def test_a_wider_angle_never_has_a_smaller_arcface_loss():
    """Also beyond pi - margin, where the cosine of the sum would rise again."""
    angle = np.linspace(0.01, math.pi - 0.01, 200)
    cosines = jnp.stack([jnp.cos(angle), jnp.zeros(200)], 1)
    losses = arcface_losses(cosines, jnp.zeros(200, int), margin=0.5, scale=4.0)
    assert (jnp.diff(losses) > 0).all()
    plain = arcface_losses(cosines, jnp.zeros(200, int), margin=0.0, scale=4.0)
    expected = jnp.log1p(jnp.exp(-4 * cosines[:, 0]))
    # Roundings of logits of 4.
    np.testing.assert_allclose(plain, expected, atol=1e-6)


@pytest.mark.slow
def test_gradients_are_finite_where_roots_have_none():
    """Outputs of zeros, on a centre, and opposite to it; a class with one example."""
    x = jnp.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    label = jnp.array([0, 0, 1])

    def total(x: jax.Array) -> jax.Array:
        cosines = jnp.dot(unit(x), jnp.eye(2))
        arc = arcface_losses(cosines, label, margin=0.5, scale=64.0)
        alone = contrastive_losses(x[:1], label[:1], temperature=0.1)
        return jnp.sum(arc + contrastive_losses(x, label, temperature=0.1)) + alone[0]

    assert jnp.isfinite(jax.grad(total)(x)).all()


def test_centres_are_looked_at_in_training_alone():
    layers = Layers(policy=precision.parse("bf16"), rngs=nnx.Rngs(0))
    layer = ClassCentres(outputs().shape[1], NUM_CLASSES, layers=layers)
    x = jnp.bfloat16(outputs())
    layer.train()
    found = add_cosines(layer, x, None)
    assert isinstance(found, WithCosines)
    assert found.cosines.dtype == jnp.float32
    wide, kernel = np.float64(x), np.float64(layer.kernel[...])
    cosines = (wide / np.linalg.norm(wide, axis=1, keepdims=True)) @ (
        kernel / np.linalg.norm(kernel, axis=0)
    )
    np.testing.assert_allclose(found.cosines, cosines, atol=1e-6)
    layer.eval()
    assert add_cosines(layer, x, None) is x
