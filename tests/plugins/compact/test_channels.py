"""Channels that are followed through a model, and models with fewer of them."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax import lax

from jaxtrain.errors import UserError
from jaxtrain.models import MODELS, defaults
from jaxtrain.models.base import Model
from jaxtrain.models.blueprint import Blueprint
from jaxtrain.models.layers import Layers
from jaxtrain.plugins.compact.channels.cut import first_units, take
from jaxtrain.plugins.compact.channels.follow import follow
from jaxtrain.plugins.compact.channels.groups import ChannelMap, channels_of
from jaxtrain.training import precision
from jaxtrain.training.flops import count_flops
from jaxtrain.training.forward import apply_model, predict
from jaxtrain.training.state import split_model
from tests.helpers.blueprints import make_blueprint
from tests.helpers.parts import model_config
from tests.helpers.rows import each_row
from tests.helpers.tiers import thinned

FAMILIES = [
    *(
        "resnet18",
        "lenet",
        "convnet",
        "whitened_cnn",
        "resnet50d",
        "seresnet50",
        "resnext50_32x4d",
    ),
    *("preact_resnet18", "regnet_y_3_2gf", "vgg11_bn", "googlenet", "inception_v3"),
    *("densenet121", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0"),
    *("convnext_tiny", "unet", "deeplabv3_resnet50", "fcos"),
]
SIZES = {"googlenet": 64, "inception_v3": 96, "unet": 64, "fcos": 64}
RESIZING = ("deeplabv3_resnet50",)
SPECS: dict[str, Any] = {
    "unet": (64, 64, 3),
    "deeplabv3_resnet50": (32, 32, 3),
    "fcos": tuple(
        {
            "boxes": (side, side, 4),
            "centerness": (side, side, 1),
            "classes": (side, side, 2),
        }
        for side in (8, 4, 2)
    ),
}


def blueprint(name: str, **options: Any) -> Blueprint:
    given = {"width": 0.125} if "width" in defaults(MODELS[name]) else {}
    if name.startswith("vgg"):
        given = {"width": 0.02}
    if name == "resnext50_32x4d":
        given = {"width": 1.0}
    size = SIZES.get(name, 32)
    return make_blueprint(
        model_config(name, **given, **options),
        (size, size, 3),
        5 if name not in SPECS else 3,
        "fp64" if jnp.ones(()).dtype == "float64" else "fp32",
        output_spec=SPECS.get(name),
    )


def channels(made: Blueprint) -> ChannelMap:
    return channels_of(made.abstract(), made.images(2))


def weights(made: Blueprint) -> tuple[Any, Any, dict[str, np.ndarray]]:
    """Return the graph, the tree, and random arrays, by their paths, of a model."""
    graphdef, params, state = split_model(made.abstract())
    rng = np.random.default_rng(0)
    leaves, tree = jax.tree_util.tree_flatten_with_path((params, state))
    arrays = {}
    for path, x in leaves:
        name = "/".join(str(key.key) for key in path[1:])
        # Variances and factors above 0; kernels that neither grow nor shrink much.
        spread = 1 / np.sqrt(max(1, np.prod(x.shape[:-1])))
        arrays[name] = rng.uniform(-spread, spread, x.shape) + (x.ndim == 1)
    return graphdef, tree, arrays


def evaluate(made: Blueprint, arrays: dict[str, np.ndarray], images: Any) -> Any:
    graphdef, tree, _ = weights(made)
    params, state = tree.unflatten(map(jnp.asarray, arrays.values()))
    return jax.jit(lambda p, s, x: predict(graphdef, p, s, x))(params, state, images)


def same(found: Any, expected: Any) -> None:
    # Sums of some hundred numbers in float64, in another order, through 50 layers.
    atol = 1e-10 * float(abs(expected).max())
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("name", ["cnn4", *thinned(7, FAMILIES)])
def test_without_channels_that_are_zero_a_model_puts_out_the_same(name: str):
    with jax.enable_x64():
        made = blueprint(name)
        whole, (_, _, arrays) = channels(made), weights(made)
        rng = np.random.default_rng(1)
        kept = {
            group: np.sort(
                rng.permutation(x.num_units)[: rng.integers(1, x.num_units + 1)]
            )
            for group, x in whole.groups.items()
        }
        # All that makes the others is 0; what takes them is not.
        for group, units in kept.items():
            found = whole.groups[group]
            gone = np.delete(np.arange(found.num_units), units)
            for (path, dim), indices in found.indices.items():
                if (path, dim) not in found.taken:
                    np.moveaxis(arrays[path], dim, 0)[indices[gone]] = 0
        images = rng.normal(size=(2, *made.image_shape))
        expected = evaluate(made, arrays, images)
        indices = whole.indices_of(kept)
        numbers = {n: whole.groups[n].unit * len(units) for n, units in kept.items()}
        config = dataclasses.replace(made.config, channels=numbers)
        smaller = dataclasses.replace(made, config=config)
        cut = {path: take(path, x, indices) for path, x in arrays.items()}
        shapes = {path: x.shape for path, x in weights(smaller)[2].items()}
        assert {path: x.shape for path, x in cut.items()} == shapes
        found = evaluate(smaller, cut, images)
        jax.tree.map(same, found, expected)
        # And it is cheaper by as much as was told.
        graphdef, params, state = split_model(smaller.abstract())
        traced = jax.make_jaxpr(functools.partial(predict, graphdef))(
            params, state, smaller.images(2)
        )
        told, counted = whole.flops(kept), count_flops(traced.jaxpr) // 2
        assert counted < whole.flops({})
        # JAX orders the products of a resize by the sizes of the arrays.
        assert abs(told - counted) <= (name in RESIZING) * 0.01 * counted
        # It trains.
        given = params, state, smaller.images(2), jax.random.key(0)
        jax.eval_shape(functools.partial(apply_model, graphdef), *given)


def test_numbers_of_channels_that_there_cannot_be_are_refused():
    found = channels(blueprint("cnn4"))
    rows = {
        "conv9": (
            3,
            "conv9 = 3: .* one of 5 layers, such as conv1; perhaps you meant conv4",
        ),
        "head/linear": (
            3,
            "cannot be removed .its channels are outputs of the model",
        ),
        "conv1": (5, "conv1 = 5: expected 1 to 4$"),
    }
    for name, (number, message) in rows.items():
        with pytest.raises(UserError, match=message):
            first_units(found, {name: number})
    grouped = channels(blueprint("resnext50_32x4d"))
    with pytest.raises(UserError, match="= 6: expected 4 to 128, in steps of 4"):
        first_units(grouped, {"stage1_block1/conv1": 6})


Weights = dict[str, jax.Array]


def conv(x: jax.Array, kernel: jax.Array, **options: Any) -> jax.Array:
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=numbers, **options
    )


def shuffled(x: jax.Array) -> jax.Array:
    parts = x.reshape(*x.shape[:3], 2, -1)
    return parts.swapaxes(3, 4).reshape(x.shape)


# What lies between two kernels of 8 channels, and whether these can go.
BETWEEN: dict[str, tuple[Callable[[jax.Array], jax.Array], bool]] = {
    "nothing": (lambda x: x, True),
    "a mask of constants": (lambda x: jnp.where(x > 0, x, 0.0), True),
    "rows and columns that are padded and cut": (
        lambda x: jnp.pad(x, ((0, 0), (1, 1), (0, 0), (0, 0)))[:, 2:],
        True,
    ),
    "channels in the second dim": (
        lambda x: (x.transpose(0, 3, 1, 2) * 2).transpose(0, 2, 3, 1),
        True,
    ),
    "a sum of both signs": (lambda x: jax.nn.relu(x) - jax.nn.relu(-x), True),
    "gates of means": (
        lambda x: x * jax.nn.sigmoid(x.mean((1, 2), keepdims=True)),
        True,
    ),
    "a result that nothing reads": (lambda x: (x[..., :2], x)[1], True),
    "numbers of each channel that are no weights": (
        lambda x: x * jnp.asarray(np.arange(8.0)),
        False,
    ),
    "the mean of all channels": (lambda x: x - x.mean(-1, keepdims=True), False),
    "a half of the channels": (
        lambda x: jnp.concatenate([x[..., 4:], x[..., 4:]], -1),
        False,
    ),
    "channels that are parted": (shuffled, False),
    "an operation without a rule": (lambda x: jnp.sort(x, axis=1), False),
    "channels that are padded": (
        lambda x: x + jnp.pad(x[..., :1], ((0, 0),) * 3 + ((0, 7),)),
        False,
    ),
}


@each_row("name", BETWEEN)
def test_what_channels_go_through(name: str):
    between, goes = BETWEEN[name]
    shapes = {"first": (3, 3, 3, 8), "second": (1, 1, 8, 2)}
    weights = {n: jax.ShapeDtypeStruct(s, jnp.float32) for n, s in shapes.items()}

    def function(weights: Weights, x: jax.Array) -> jax.Array:
        return conv(between(conv(x, weights["first"])), weights["second"])

    images = jax.ShapeDtypeStruct((2, 6, 6, 3), jnp.float32)
    found, (first, second) = follow(function, weights, images)
    numbers = found.components()
    stays = {int(numbers[x]) for labels, _ in found.reasons for x in labels}
    made = numbers[first.dims[3]]
    assert not stays & set(made.tolist()) if goes else set(made.tolist()) <= stays
    if goes:
        np.testing.assert_array_equal(made, numbers[second.dims[2]])
        assert len(set(made.tolist())) == 8


class Bare(Model):
    """A model that puts out what its only kernel makes."""

    def __init__(self, image_shape: Any, num_outputs: int, *, layers: Layers):
        linear = layers.linear(image_shape[2], num_outputs)
        self.add_piece(lambda layer, x, rngs: layer(x).mean((1, 2)), linear=linear)


def test_a_model_whose_channels_cannot_go_is_refused_by_its_layers():
    layers = Layers(policy=precision.parse("fp32"), rngs=nnx.Rngs(0))
    made = Bare((8, 8, 3), 4, layers=layers)
    images = jax.ShapeDtypeStruct((2, 8, 8, 3), jnp.float32)
    with pytest.raises(UserError, match=r"Bare .* .linear: .*outputs of the model"):
        channels_of(made, images)


@pytest.mark.slow
def test_a_backbone_is_left_with_the_channels_of_its_classifier():
    numbers = {"stem_conv": 3, "stage2_block1/conv1": 5}
    classifier = weights(blueprint("resnet18", channels=numbers))[2]
    options = {"backbone": "resnet18", "channels": numbers}
    made = weights(blueprint("unet", **options))[2]
    assert made["stage2_block1/conv1/kernel"].shape == (3, 3, 3, 5)
    for path, x in classifier.items():
        assert path.startswith("head/") or x.shape == made[path].shape
