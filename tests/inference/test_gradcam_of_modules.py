"""Grad-CAM of plain Flax modules: of the last call of a layer that leaves images."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxtrain import own
from jaxtrain.errors import UserError
from jaxtrain.inference import gradcam
from jaxtrain.inference.model import TrainedModel, make_model
from jaxtrain.weights.stored import abstract_weights
from tests.helpers.described import describe
from tests.helpers.parts import model_config
from tests.helpers.processes import ROOT

MODULES = ROOT / "tests" / "helpers" / "flax_modules.py"
SHAPE, CLASSES = (8, 8, 1), np.array([2, 4, 8])


class Recomputed(nnx.Module):
    """A layer whose activations are those of a trace of Flax, behind another."""

    def __init__(self, *, rngs: nnx.Rngs):
        self.first = nnx.Conv(1, 4, (3, 3), rngs=rngs)
        self.second = nnx.Conv(4, 4, (3, 3), rngs=rngs)
        self.head = nnx.Linear(4, 10, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.first(x)
        x = nnx.remat(lambda model, x: model.second(x))(self, x)
        return self.head(x.mean((1, 2)))


class Repeated(Recomputed):
    """A layer that a loop applies twice, behind another."""

    def __call__(self, x: jax.Array) -> jax.Array:
        def step(x: jax.Array, _: None) -> tuple[jax.Array, None]:
            return self.second(x), None

        x, _ = jax.lax.scan(step, self.first(x), length=2)
        return self.head(x.mean((1, 2)))


class Flat(nnx.Module):
    """Has no activations with rows and columns."""

    def __init__(self, *, rngs: nnx.Rngs):
        self.head = nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.head(x.reshape(x.shape[0], -1))


def make(reference: str) -> TrainedModel:
    own.allow([reference])
    about = describe(model_config(reference), SHAPE, num_outputs=10)
    draws = np.random.default_rng(0)
    params, model_state = jax.tree.map(
        lambda x: draws.normal(0.0, 0.3, x.shape).astype(x.dtype),
        abstract_weights(about),
    )
    # Variances are above 0.
    model_state = jax.tree.map(np.abs, model_state)
    return make_model(about, params, model_state, {}, "here")


def found(model: TrainedModel, images: Any) -> np.ndarray:
    weights = model.params, model.model_state
    maps = functools.partial(gradcam.heat_maps, model, gradcam.last_place(model))
    return np.asarray(jax.jit(maps)(*weights, images, jnp.array(CLASSES)))


def expected(activations: Any, rest: Any) -> jax.Array:
    grads = jax.grad(lambda a: rest(a)[np.arange(3), CLASSES].sum())(activations)
    weighed = grads.mean((1, 2), keepdims=True) * activations
    return jax.nn.relu(weighed.sum(-1))


def check(reference: str, first: Any, rest: Any) -> None:
    model = make(reference)
    images = jax.random.normal(jax.random.key(0), (3, *SHAPE))

    @jax.jit
    def by_hand(weights: Any, images: jax.Array) -> jax.Array:
        module = nnx.merge(model.graphdef, *weights)
        module.eval()
        return expected(first(module, images), lambda a: rest(module, a))

    maps = by_hand((model.params, model.model_state), images)
    assert maps.max() > 0
    np.testing.assert_allclose(found(model, images), maps, rtol=1e-4, atol=1e-5)


def test_maps_of_an_nnx_module_are_of_its_last_norm():
    def first(m: Any, x: jax.Array) -> jax.Array:
        x = m.avg_pool(nnx.relu(m.batch_norm1(m.conv1(x))))
        return m.batch_norm2(m.conv2(x))

    def rest(m: Any, x: jax.Array) -> jax.Array:
        x = m.avg_pool(nnx.relu(x))
        return m.linear2(nnx.relu(m.linear1(x.reshape(x.shape[0], -1))))

    check(f"{MODULES}:CNN", first, rest)


def test_maps_of_a_linen_module_are_of_its_last_block():
    def first(m: Any, x: jax.Array) -> jax.Array:
        linen_module = m.to_nnx__module
        variables = {
            "params": nnx.to_pure_dict(nnx.state(m, nnx.Param)),
            "batch_stats": nnx.to_pure_dict(nnx.state(m, nnx.BatchStat)),
        }
        _, seen = linen_module.apply(
            variables, x, train=False, capture_intermediates=True
        )
        return seen["intermediates"]["ResNetBlock_1"]["__call__"][0]

    def rest(m: Any, x: jax.Array) -> jax.Array:
        return x.mean((1, 2)) @ m.Dense_0["kernel"][...] + m.Dense_0["bias"][...]

    check(f"{MODULES}:ResNet", first, rest)


def test_activations_that_flax_recomputes_are_read():
    check(
        f"{__file__}:Recomputed",
        lambda m, x: m.second(m.first(x)),
        lambda m, x: m.head(x.mean((1, 2))),
    )


def test_activations_of_a_loop_are_passed_over():
    check(
        f"{__file__}:Repeated",
        lambda m, x: m.first(x),
        lambda m, x: m.head(m.second(m.second(x)).mean((1, 2))),
    )


def test_a_module_without_images_of_features_has_no_maps():
    with pytest.raises(UserError, match=r":Flat' has no layer with spatial"):
        gradcam.last_place(make(f"{__file__}:Flat"))
