"""Where a model rounds, and what it is without rounding."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxtrain import own
from jaxtrain.config import ConvNetConfig
from jaxtrain.errors import UserError
from jaxtrain.models.base import Model
from jaxtrain.models.blueprint import Blueprint, initial_rngs
from jaxtrain.models.head import Head
from jaxtrain.models.layers import Layers
from jaxtrain.plugins.quantization import fake_quantization
from jaxtrain.training.forward import apply_model, predict
from jaxtrain.training.state import split_model
from tests.helpers.blueprints import make_blueprint
from tests.helpers.parts import model_config

SHAPE = (16, 16, 3)


def blueprint(name: str, quantize: Any = "int8", **options: Any) -> Blueprint:
    return make_blueprint(model_config(name, quantize=quantize, **options), SHAPE, 4)


def ranges(name: str, **options: Any) -> list[str]:
    """Return the places of a model at which activations are rounded."""
    flat = nnx.to_flat_state(nnx.state(blueprint(name, **options).abstract()))
    return sorted("/".join(map(str, p[:-1])) for p, _ in flat if p[-1] == "low")


def test_each_layer_is_rounded_once():
    """In a residual block: what it takes, its ReLU, and both sides of the sum."""
    found = ranges("resnet18", width=0.0625, stem="cifar")
    first = [name for name in found if name.startswith("stage1_block1")]
    assert first == [
        "stage1_block1/conv2/input_range",
        "stage1_block1/norm2/output_range",
        "stage1_block1_ranges/ranges/array0",
    ]
    second = [name for name in found if name.startswith("stage2_block1/")]
    assert second == [
        "stage2_block1/conv2/input_range",
        "stage2_block1/norm2/output_range",
        "stage2_block1/shortcut_norm/output_range",
    ]
    ends = [name for name in found if not name.startswith("stage")]
    assert ends == [
        "head/linear/input_range",
        "head/linear/output_range",
        "head_ranges/ranges/array0",
        "stem_conv/input_range",
    ]


def test_runtimes_join_a_relu_and_a_pool_with_a_layer():
    assert ranges("lenet") == [
        "conv1/input_range",
        "conv2_ranges/ranges/array0",
        "head/linear/output_range",
        "head_ranges/ranges/array0",
        "linear1_ranges/ranges/array0",
        "linear2_ranges/ranges/array0",
    ]


class OwnProducts(Model):
    """A model that multiplies with weights outside of the layers."""

    def __init__(self, image_shape: Any, num_outputs: int, *, layers: Layers):
        self.add_piece(_own_product, own=OwnProduct(image_shape[-1], layers))
        self.add_piece(_mean_head, head=Head(8, num_outputs, 0.0, layers=layers))


class OwnProduct(nnx.Module):
    """A product with a parameter."""

    def __init__(self, channels: int, layers: Layers):
        self.weights = nnx.Param(jax.random.normal(layers.rngs.params(), (channels, 8)))


def _own_product(layer: Any, x: Any, rngs: Any) -> Any:
    return nnx.relu(x @ layer.weights[...])


def _mean_head(head: Any, x: Any, rngs: Any) -> Any:
    return head(x.mean((1, 2)), rngs)


class TwiceComputed(Model):
    """A model that computes a layer twice."""

    def __init__(self, image_shape: Any, num_outputs: int, *, layers: Layers):
        channels = image_shape[-1]
        self.add_piece(_twice, conv=layers.conv(channels, channels, 3))
        self.add_piece(_mean_head, head=Head(channels, num_outputs, 0.0, layers=layers))


def _twice(conv: Any, x: Any, rngs: Any) -> Any:
    return nnx.relu(conv(conv(x)))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("OwnProducts", "multiplies by weights"),
        ("TwiceComputed", "calls the layer 'conv' several times"),
    ],
)
def test_a_model_that_cannot_be_rounded_is_named(name: str, message: str):
    name = f"tests.plugins.quantization.test_quantized:{name}"
    own.allow([name])
    with pytest.raises(UserError, match=message):
        blueprint(name).abstract()
    blueprint(name, None).abstract()


@pytest.mark.slow
def test_without_rounding_it_is_the_plain_model(monkeypatch: pytest.MonkeyPatch):
    """Outputs, gradients and statistics of a step, with steps of 2^-40 of a range."""
    monkeypatch.setattr(fake_quantization, "ACTIVATION_LEVELS", 2.0**40)
    monkeypatch.setattr(fake_quantization, "WEIGHT_LEVELS", 2.0**40)
    jax.clear_caches()
    try:
        with jax.enable_x64(True):
            found = {q: _step(q) for q in (None, "int8")}
    finally:
        jax.clear_caches()
    plain, rounded = found[None], found["int8"]
    for path, x in plain.items():
        np.testing.assert_allclose(rounded[path], x, rtol=1e-6, atol=1e-9, err_msg=path)


def _step(quantize: Any) -> dict[str, np.ndarray]:
    made = make_blueprint(
        ConvNetConfig(name="convnet", width=0.0625, quantize=quantize), SHAPE, 4, "fp64"
    )
    graphdef, params, state = split_model(made.build(initial_rngs(jax.random.key(0))))
    images = jax.random.normal(jax.random.key(1), (8, *SHAPE), jnp.float64)

    def loss(params: Any) -> Any:
        y, new = apply_model(graphdef, params, state, images, jax.random.key(2))
        return (y**2).sum(), (y, new)

    grads, (y, new) = jax.jit(jax.grad(loss, has_aux=True))(params)
    flat = jax.tree_util.tree_leaves_with_path({"grads": grads, "state": new, "y": y})
    found = {jax.tree_util.keystr(path): np.asarray(x) for path, x in flat}
    # What lies outside of the ranges of one batch would be cut off.
    wide = jax.tree_util.tree_map_with_path(_widened, new)
    return {**found, "eval": np.asarray(predict(graphdef, params, wide, images))}


def _widened(path: Any, x: jax.Array) -> jax.Array:
    ends = {"low": x - 1e3, "high": x + 1e3}
    return ends.get(str(path[-1].key), x)
