"""ONNX files of functions of JAX: the same numbers, in the operators that are best."""

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jmp
import numpy as np
import onnx
import onnxruntime
import pytest
from flax import nnx
from jax import lax

from jaxtrain.errors import UserError
from jaxtrain.models import activations, pools
from jaxtrain.models.blocks import SqueezeExcite
from jaxtrain.models.layers import Layers
from jaxtrain.plugins.onnx.onnx_file import emit
from tests.helpers.rows import each_row

FP32 = jmp.get_policy("params=float32,compute=float32,output=float32")
SHAPE = (9, 8, 6)
RNG = np.random.default_rng(0)
# Sums of at most a thousand float32 numbers in another order.
TOLERANCE = 1e-5

Function = Callable[[jax.Array], jax.Array]


def numbers(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def filled(make: Callable[[Layers], nnx.Module]) -> Callable[[Any], jax.Array]:
    """Return a layer in evaluation, its biases and statistics random, too."""

    def create() -> nnx.Module:
        return make(Layers(policy=FP32, rngs=nnx.Rngs(0)))

    graphdef, state = nnx.split(nnx.eval_shape(create))

    def draw(path: Any, x: Any) -> np.ndarray:
        values = numbers(*x.shape)
        return 1 + values**2 if "var" in str(path) else values

    state = jax.tree_util.tree_map_with_path(draw, state)

    def apply(x: jax.Array) -> jax.Array:
        layer: Any = nnx.merge(graphdef, state)
        layer.eval()
        return layer(x)

    return apply


def conv(groups: int = 1, **options: Any) -> Function:
    return filled(lambda layers: layers.conv(6, 12, 3, groups=groups, **options))


def batch_norm(channels: int) -> Function:
    return filled(lambda layers: layers.batch_norm(channels))


def chain(*functions: Function) -> Function:
    def run(x: jax.Array) -> jax.Array:
        for function in functions:
            x = function(x)
        return x

    return run


def branches(x: jax.Array) -> jax.Array:
    """Inception's: a convolution and a mean pool side by side, and a skip."""
    pooled = pools.average_pool(x, 3, stride=1, padding=1)
    return jnp.concatenate([CONV(x), pooled, x], axis=-1)


def shuffle(x: jax.Array) -> jax.Array:
    """ShuffleNet's: the channels of two groups take turns."""
    batch, rows, columns, channels = x.shape
    parts = x.reshape(batch, rows, columns, 2, channels // 2)
    return jnp.swapaxes(parts, 3, 4).reshape(x.shape)


def attention(x: jax.Array) -> jax.Array:
    """Products of two computed matrices, and a softmax between."""
    tokens = x.reshape(x.shape[0], -1, x.shape[-1])
    scores = jnp.einsum("bik,bjk->bij", tokens, tokens)
    return jnp.einsum("bij,bjk->bik", jax.nn.softmax(scores), tokens).mean(1)


def convnext(x: jax.Array) -> jax.Array:
    """ConvNeXt's block, with its residual and the convolution that follows it."""
    y = DEPTHWISE(x)
    y = NORM(y)
    y = activations.gelu(y @ WIDE + BIAS) @ NARROW * SCALE
    return CONV(x + y)


def gated(x: jax.Array) -> jax.Array:
    return jnp.where(x > 0.5, lax.clamp(-1.0, x, 1.0), -x) * (x != 0).astype(x.dtype)


def slices(x: jax.Array) -> jax.Array:
    first, second = jnp.split(CONV(x), [4], axis=-1)
    padded = jnp.pad(first[:, 1:-1, ::2], ((0, 0), (1, 2), (0, 1), (0, 0)))
    return padded.sum((1, 2)) + second.max((1, 2))[:, :4] - second.min((1, 2))[:, 4:]


CONV, DEPTHWISE = conv(), filled(lambda layers: layers.conv(6, 6, 7, groups=6))
NORM = filled(lambda layers: layers.layer_norm(6))
WIDE, BIAS, NARROW, SCALE = numbers(6, 24), numbers(24), numbers(24, 6), numbers(6)
GATE = filled(
    lambda layers: SqueezeExcite(12, 4, layers=layers, gate=activations.hard_sigmoid)
)
SAME: Any = "SAME"
AROUND: Any = ((1, 1), (2, 1))
POINT, FLAT = numbers(12, 5), numbers(9 * 8 * 12, 5)

# What the function is -> it, and the operators, but for the transposes of the
# images as they come in and go out.
CASES: dict[str, tuple[Function, str]] = {
    "conv": (CONV, "Conv"),
    "strided": (conv(stride=2), "Conv"),
    "same": (conv(stride=2, padding="SAME"), "Conv"),
    "dilated": (conv(dilation=2), "Conv"),
    "grouped": (conv(groups=3), "Conv"),
    "depthwise": (conv(groups=6), "Conv"),
    "pointwise": (chain(CONV, lambda x: x @ POINT + 1), "Conv Conv"),
    "batch norm after conv": (chain(CONV, batch_norm(12)), "Conv"),
    "batch norm before conv": (
        chain(batch_norm(6), nnx.relu, CONV),
        "BatchNormalization Relu Conv",
    ),
    "batch norm after dense": (
        chain(pools.flatten, lambda x: x @ FLAT[: 9 * 8 * 6], batch_norm(5)),
        "Reshape Gemm",
    ),
    "two norms": (chain(CONV, batch_norm(12), lambda x: 2 - x / 3), "Conv"),
    "conv that is used twice": (
        lambda x: (y := CONV(x)) * 2 + nnx.sigmoid(y),
        "Conv Mul Sigmoid Add",
    ),
    "max pool": (
        chain(CONV, lambda x: nnx.max_pool(x, (3, 3), (2, 2), AROUND)),
        "Conv MaxPool",
    ),
    "max pool of blocks": (chain(CONV, pools.max_pool), "Conv MaxPool"),
    "mean pool": (lambda x: pools.average_pool(x, 2), "AveragePool"),
    "mean pool, padded": (
        lambda x: pools.average_pool(x, 3, stride=2, padding=1),
        "AveragePool",
    ),
    "mean pool, padding left out": (
        lambda x: pools.average_pool(x, 3, stride=2, padding=1, count_padding=False),
        "AveragePool",
    ),
    "mean pool, same": (
        lambda x: nnx.avg_pool(x, (3, 3), (2, 2), SAME, count_include_pad=False),
        "AveragePool",
    ),
    "mean": (chain(CONV, lambda x: x.mean((1, 2))), "Conv GlobalAveragePool Flatten"),
    "flatten": (
        chain(CONV, pools.flatten, lambda x: x @ FLAT),
        "Conv Flatten MatMul",
    ),
    "gelu": (activations.gelu, "Div Erf Add Mul Mul"),
    "gelu by tanh": (jax.nn.gelu, "Mul Mul Mul Add Mul Tanh Add Mul Mul"),
    "silu": (activations.silu, "Sigmoid Mul"),
    "hard sigmoid": (activations.hard_sigmoid, "HardSigmoid"),
    "hard swish": (activations.hard_swish, "HardSwish"),
    "relu6": (jax.nn.relu6, "Clip"),
    "rounded": (jnp.round, "Round"),
    "leaky relu": (jax.nn.leaky_relu, "GreaterOrEqual Mul Where"),
    "squeeze and excite": (
        chain(CONV, GATE),
        "Conv GlobalAveragePool Conv Relu Conv Clip Mul Mul",
    ),
    "layer norm": (NORM, "LayerNormalization"),
    "softmax": (jax.nn.softmax, "ReduceMax Sub Exp ReduceSum Div"),
    "branches": (branches, "Conv AveragePool Concat"),
    "shuffle": (shuffle, "Reshape Transpose Reshape"),
    "attention": (
        attention,
        "Reshape Transpose MatMul ReduceMax Sub Exp ReduceSum Div MatMul ReduceMean",
    ),
    "convnext": (
        convnext,
        "Conv Transpose LayerNormalization MatMul Add Div Erf Add Mul Mul MatMul "
        "Transpose Add Conv",
    ),
    "select": (gated, ""),
    "stack": (lambda x: jnp.stack([x.sum(1), x.max(1)], 2), ""),
    "slices": (slices, ""),
    "powers": (lambda x: jnp.abs(x) ** 2.5, "Abs Pow"),
}


def run(model: Any, images: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return np.asarray(session.run(None, {"images": images})[0])


def operators(model: Any) -> list[str]:
    return [node.op_type for node in model.graph.node]


@functools.cache
def references() -> tuple[np.ndarray, dict[str, jax.Array]]:
    """Return images, and what all functions make of them, compiled at once."""
    images = RNG.normal(size=(3, *SHAPE)).astype(np.float32)
    run = jax.jit(
        lambda x: {name: function(x) for name, (function, _) in CASES.items()}
    )
    return images, run(images)


@each_row("name", CASES)
def test_a_function_is_the_same_in_onnx(name: str):
    function, expected = CASES[name]
    model = emit(function, SHAPE, dtype=np.float32)
    onnx.checker.check_model(model, full_check=True)
    images, outputs = references()
    wanted = np.asarray(outputs[name])
    atol = TOLERANCE * float(np.abs(wanted).max())
    for batch in (1, 3):
        found = run(model, images[:batch])
        np.testing.assert_allclose(found, wanted[:batch], rtol=0, atol=atol)
    if expected:
        count = Counter(operators(model))
        # Those of the images as they come in and go out.
        extra = count["Transpose"] - expected.split().count("Transpose")
        assert 0 <= extra <= 2
        count["Transpose"] -= extra
        assert +count == Counter(expected.split())


def test_what_it_does_not_know_is_named():
    with pytest.raises(UserError, match=r"'cumsum'.*--format stablehlo"):
        emit(lambda x: jnp.cumsum(x, 1).sum((1, 2)), SHAPE, dtype=np.float32)


def test_a_function_that_needs_the_number_of_images_is_refused():
    with pytest.raises(UserError, match=r"--batch dynamic.*instead of len\(x\)"):
        emit(lambda x: x.reshape(len(x), -1), SHAPE, dtype=np.float32)


def test_a_batch_may_be_fixed():
    model = emit(CONV, SHAPE, dtype=np.float32, batch=2)
    sizes = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    assert sizes == [2, *SHAPE]
    images = RNG.normal(size=(2, *SHAPE)).astype(np.float32)
    np.testing.assert_allclose(run(model, images), CONV(jnp.asarray(images)), atol=1e-5)
