"""Layers against their formulas, written out in NumPy."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import jmp
import numpy as np
import pytest
from flax import nnx

from jaxtrain.models import activations, pools
from jaxtrain.models.blocks import SqueezeExcite
from jaxtrain.models.layers import Layers, drop_path
from jaxtrain.models.window_max import Windows, window_max
from tests.helpers.rows import each_row

FP32 = jmp.get_policy("params=float32,compute=float32,output=float32")
BF16 = jmp.get_policy("params=float32,compute=bfloat16,output=float32")
RNG = np.random.default_rng(0)


def make(policy: jmp.Policy = FP32) -> Layers:
    return Layers(policy=policy, rngs=nnx.Rngs(0))


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def convolve(
    x: np.ndarray,
    kernel: np.ndarray,
    *,
    stride: int = 1,
    pads: tuple[tuple[int, int], tuple[int, int]],
    dilation: int = 1,
    groups: int = 1,
) -> np.ndarray:
    """Sum up the products pixel by pixel, in float64."""
    x = np.pad(x.astype(np.float64), ((0, 0), *pads, (0, 0)))
    reach = [dilation * (n - 1) + 1 for n in kernel.shape[:2]]
    rows, columns = (
        (n - r) // stride + 1 for n, r in zip(x.shape[1:3], reach, strict=True)
    )
    y = np.zeros((len(x), rows, columns, kernel.shape[3]))
    num_in, num_out = kernel.shape[2], kernel.shape[3] // groups
    for i, j, channel in np.ndindex(rows, columns, kernel.shape[3]):
        top, left = i * stride, j * stride
        first = channel // num_out * num_in
        window = x[
            :,
            top : top + reach[0] : dilation,
            left : left + reach[1] : dilation,
            first : first + num_in,
        ]
        y[:, i, j, channel] = (window * kernel[..., channel]).sum((1, 2, 3))
    return y


@each_row(
    ("size", "options", "pads"),
    [
        (3, {}, ((1, 1), (1, 1))),
        (5, {"stride": 2}, ((2, 2), (2, 2))),
        ((1, 7), {}, ((0, 0), (3, 3))),
        ((3, 5), {"padding": (2, 0)}, ((2, 2), (0, 0))),
        (3, {"dilation": 2}, ((2, 2), (2, 2))),
        (3, {"groups": 2}, ((1, 1), (1, 1))),
        (3, {"groups": 6}, ((1, 1), (1, 1))),
        (4, {"stride": 4, "padding": 0}, ((0, 0), (0, 0))),
        # Of 8 rows and 9 columns: one is missing below, two are at the sides.
        (3, {"stride": 2, "padding": "SAME"}, ((0, 1), (1, 1))),
    ],
)
def test_convolution(size: Any, options: dict[str, Any], pads: Any):
    # Of shapes alone: drawing the kernel would take longer than all the rest.
    layer = nnx.eval_shape(lambda: make().conv(6, 12, size, bias=False, **options))
    x, kernel = normal(2, 8, 9, 6), normal(*layer.kernel.shape)
    kernel /= math.sqrt(kernel[..., 0].size)
    nnx.update(layer, {"kernel": jnp.asarray(kernel)})
    others = {k: v for k, v in options.items() if k != "padding"}
    expected = convolve(x, kernel, pads=pads, **others)
    # Sums of up to 150 products of about 0.1 in float32.
    np.testing.assert_allclose(layer(jnp.asarray(x)), expected, atol=1e-5)


@each_row("count_padding", [True, False])
@each_row(
    ("size", "stride", "padding", "pads"),
    [
        (2, None, 0, ((0, 0), (0, 0))),
        (3, 1, 1, ((1, 1), (1, 1))),
        ((1, 3), 2, (0, 1), ((0, 0), (1, 1))),
        (3, 2, "SAME", ((0, 1), (1, 1))),
    ],
)
def test_average_pool(size, stride, padding, pads, count_padding: bool):
    x = normal(2, 8, 9, 3)
    window = size if isinstance(size, tuple) else (size, size)
    strides = window if stride is None else (stride, stride)
    y = pools.average_pool(
        jnp.asarray(x),
        size,
        stride=stride,
        padding=padding,
        count_padding=count_padding,
    )
    padded = np.pad(x, ((0, 0), *pads, (0, 0)), constant_values=np.nan)
    for i, j in np.ndindex(*y.shape[1:3]):
        top, left = i * strides[0], j * strides[1]
        part = padded[:, top : top + window[0], left : left + window[1]]
        mean = np.nan_to_num(part).mean((1, 2))
        expected = mean if count_padding else np.nanmean(part, (1, 2))
        np.testing.assert_allclose(y[:, i, j], expected, rtol=1e-5, atol=1e-6)
    rows, columns = (
        (n - w) // s + 1
        for n, w, s in zip(padded.shape[1:3], window, strides, strict=True)
    )
    assert y.shape == (2, rows, columns, 3)


def test_average_pool_sums_in_float32():
    x = jnp.full((1, 32, 32, 1), 1.0625, jnp.bfloat16)
    y = pools.average_pool(x, 32)
    assert y.dtype == jnp.bfloat16
    # bfloat16 has 8 bits: sums of it would stop growing at 256.
    assert float(y[0, 0, 0, 0]) == 1.0625


@each_row("size", [7, (4, 1), (2, 3), (8, 9)])
def test_adaptive_average_pool(size: Any):
    x = normal(2, 8, 9, 3)
    rows, columns = size if isinstance(size, tuple) else (size, size)
    y = pools.adaptive_average_pool(jnp.asarray(x), size)
    assert y.shape == (2, rows, columns, 3)
    for i, j in np.ndindex(rows, columns):
        top, bottom = math.floor(i * 8 / rows), math.ceil((i + 1) * 8 / rows)
        left, right = math.floor(j * 9 / columns), math.ceil((j + 1) * 9 / columns)
        expected = x[:, top:bottom, left:right].mean((1, 2))
        np.testing.assert_allclose(y[:, i, j], expected, rtol=1e-5, atol=1e-6)


def test_adaptive_average_pool_repeats_rows_and_sums_in_float32():
    x = jnp.arange(2, dtype=jnp.bfloat16).reshape(1, 2, 1, 1)
    rows = pools.adaptive_average_pool(x, (5, 1))[0, :, 0, 0]
    assert rows.tolist() == [0, 0, 0.5, 1, 1]
    y = pools.adaptive_average_pool(jnp.full((1, 32, 40, 1), 1.0625, jnp.bfloat16), 1)
    assert y.dtype == jnp.bfloat16
    assert float(y[0, 0, 0, 0]) == 1.0625


@each_row(("rows", "columns"), [(6, 7), (5, 8)])
@each_row(
    "options",
    [
        {"stride": 2},
        {"stride": 2, "keep_rest": True},
        {"stride": 2, "padding": 1},
        {"stride": 1, "padding": 1},
    ],
)
def test_max_pool_of_3x3(rows: int, columns: int, options: dict[str, Any]):
    x = normal(2, rows, columns, 3)
    y = pools.max_pool_3x3(jnp.asarray(x), **options)
    stride, padding = options["stride"], options.get("padding", 0)
    rounded = math.ceil if options.get("keep_rest") else math.floor
    sizes = [rounded((n + 2 * padding - 3) / stride) + 1 for n in (rows, columns)]
    assert y.shape == (2, *sizes, 3)
    for i, j in np.ndindex(*sizes):
        top, left = i * stride - padding, j * stride - padding
        part = x[:, max(0, top) : top + 3, max(0, left) : left + 3]
        np.testing.assert_array_equal(y[:, i, j], part.max((1, 2)))


@each_row(
    ("size", "stride", "around"),
    [
        (3, 2, ((1, 1), (1, 1))),
        (3, 2, ((0, 1), (0, 0))),
        (3, 1, ((1, 1), (0, 2))),
        (3, 3, ((0, 0), (1, 1))),
        (2, 1, ((0, 1), (1, 0))),
        (2, 3, ((0, 0), (0, 0))),
    ],
)
def test_gradient_of_window_max_is_that_of_jax(size: int, stride: int, around: Any):
    """Of integers, so of many equal maxima: the first of each window has it all."""
    rng = np.random.default_rng(0)
    x = rng.integers(-2, 3, (2, 6, 7, 2)).astype(np.float64)
    windows = Windows(size, stride, around, (6, 7))

    def plain(x: jax.Array) -> jax.Array:
        padding = ((0, 0), *around, (0, 0))
        window, strides = (1, size, size, 1), (1, stride, stride, 1)
        return jax.lax.reduce_window(x, -np.inf, jax.lax.max, window, strides, padding)

    @jax.jit
    def both(x: jax.Array) -> Any:
        y, vjp = jax.vjp(functools.partial(window_max, windows), x)
        expected, expected_vjp = jax.vjp(plain, x)
        dy = jnp.arange(y.size, dtype=y.dtype).reshape(y.shape)
        return (y, *vjp(dy)), (expected, *expected_vjp(dy))

    with jax.enable_x64(True):
        for one, other in zip(*both(x), strict=True):
            np.testing.assert_array_equal(one, other)


def test_gradient_of_block_max_does_not_depend_on_rounding():
    """The compiler may compute the input anew for it, rounded otherwise than before.

    So XLA:CPU does at level 0: the gradient that JAX finds of `max` is then infinite.
    """
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 8, 8, 64)).astype(np.float32)
    scale, bias = np.linspace(0.5, 2, 64), np.linspace(-1, 1, 64)

    def graded(x: jax.Array, scale: jax.Array, bias: jax.Array) -> Any:
        y, vjp = jax.vjp(lambda x: pools.max_pool(x * scale + bias), x)
        return y, *vjp(jnp.ones_like(y))

    given = (x, scale.astype(np.float32), bias.astype(np.float32))
    options: Any = {"xla_backend_optimization_level": 0}
    _, dx = jax.jit(graded).lower(*given).compile(options)(*given)
    expected = scale.astype(np.float32) * (x == blockwise_max(x))
    np.testing.assert_array_equal(dx, expected)


def blockwise_max(x: np.ndarray) -> np.ndarray:
    """Return the maximum of its block of 2x2 for each pixel."""
    batch, rows, columns, channels = x.shape
    blocks = x.reshape(batch, rows // 2, 2, columns // 2, 2, channels)
    return np.broadcast_to(blocks.max((2, 4), keepdims=True), blocks.shape).reshape(
        x.shape
    )


def test_gradient_of_equal_maxima_goes_to_the_first():
    x = np.random.default_rng(0).integers(-2, 3, (2, 7, 9, 2)).astype(np.float32)

    def flax_pool(x: jax.Array) -> jax.Array:
        return nnx.max_pool(x, (2, 2), (2, 2))

    @jax.jit
    def both(x: jax.Array) -> Any:
        y, vjp = jax.vjp(pools.max_pool, x)
        dy = jnp.arange(y.size, dtype=y.dtype).reshape(y.shape)
        return vjp(dy), jax.vjp(flax_pool, x)[1](dy)

    (actual,), (expected,) = both(jnp.asarray(x))
    np.testing.assert_array_equal(actual, expected)


def test_gradient_of_window_max_is_summed_in_float32():
    x = np.zeros((1, 3, 3, 1))
    x[0, 1, 1] = 1
    dy = np.full((1, 2, 2, 1), 1 / 128)
    dy[0, 0, 0] = 1
    x, dy = jnp.asarray(x, jnp.bfloat16), jnp.asarray(dy, jnp.bfloat16)
    windows = Windows(2, 1, ((0, 0), (0, 0)), (3, 3))
    (dx,) = jax.vjp(functools.partial(window_max, windows), x)[1](dy)
    assert dx.dtype == jnp.bfloat16
    assert float(dx[0, 1, 1, 0]) == 1 + 3 / 128


def test_relu_and_its_derivative():
    x = jnp.array([-2.0, -0.0, 0.0, 1e-30, 3.0])
    y, vjp = jax.vjp(activations.relu, x)
    np.testing.assert_array_equal(y, nnx.relu(x))
    np.testing.assert_array_equal(vjp(jnp.full(5, 7.0))[0], [0, 0, 0, 7, 7])


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


FORMULAS = {
    "gelu": lambda x: x / 2 * math.erfc(-x / math.sqrt(2)),
    "silu": lambda x: x * sigmoid(x),
    "hard_sigmoid": lambda x: min(max(x + 3, 0), 6) / 6,
    "hard_swish": lambda x: x * min(max(x + 3, 0), 6) / 6,
}


@each_row("name", FORMULAS)
@each_row("dtype", [jnp.float32, jnp.bfloat16])
def test_activations(name: str, dtype: Any):
    x = np.linspace(-8, 8, 1001).astype(dtype)
    y = jax.jit(getattr(activations, name))(x)
    assert y.dtype == dtype
    expected = np.array([FORMULAS[name](float(value)) for value in x])
    # bfloat16 is rounded once, by half of the last of its 8 bits.
    rtol, atol = (2**-8 + 1e-5, 1e-6) if dtype == jnp.bfloat16 else (1e-5, 1e-6)
    np.testing.assert_allclose(np.asarray(y, np.float64), expected, rtol, atol)


def test_the_gradient_of_gelu_stores_its_input_alone():
    x = jnp.linspace(-4, 4, 101, dtype=jnp.bfloat16)
    _, vjp = jax.vjp(activations.gelu, x)
    (stored,) = jax.tree.leaves(vjp)
    np.testing.assert_array_equal(stored, x)
    one = jnp.ones_like(x)
    step, formula = 1e-4, FORMULAS["gelu"]
    slopes = [(formula(float(v) + step) - formula(float(v) - step)) / 2 for v in x]
    # Backwards and forwards; bfloat16 is rounded once, by half of the last of its bits.
    for dx in (vjp(one)[0], jax.jvp(activations.gelu, (x,), (one,))[1]):
        found, wanted = np.asarray(dx, np.float64), np.array(slopes) / step
        np.testing.assert_allclose(found, wanted, 2**-8, 1e-4)


@pytest.mark.parametrize("policy", [FP32, BF16])
def test_layer_norm(policy: jmp.Policy):
    layer = make(policy).layer_norm(16, epsilon=1e-3)
    scale, bias = normal(2, 16)
    nnx.update(layer, {"scale": jnp.asarray(scale), "bias": jnp.asarray(bias)})
    x = jnp.asarray(normal(2, 3, 3, 16) + 100, policy.compute_dtype)
    y = layer(x)
    assert y.dtype == policy.compute_dtype
    wide = np.asarray(x, np.float64)
    centred = wide - wide.mean(-1, keepdims=True)
    expected = centred / np.sqrt(wide.var(-1, keepdims=True) + 1e-3) * scale + bias
    # Of values near 100 float32 keeps 7e-6.
    atol = 1e-4 if policy is FP32 else 2**-8 * np.abs(expected).max()
    np.testing.assert_allclose(np.asarray(y, np.float64), expected, atol=atol)


def test_squeeze_and_excitation():
    layer = SqueezeExcite(
        8, 4, layers=make(), activation=activations.silu, gate=activations.hard_sigmoid
    )
    x = normal(2, 3, 5, 8)
    hidden = x.mean((1, 2)) @ np.asarray(layer.squeeze.kernel[...])
    hidden = np.vectorize(FORMULAS["silu"])(hidden)
    gate = hidden @ np.asarray(layer.excite.kernel[...])
    gate = np.vectorize(FORMULAS["hard_sigmoid"])(gate)[:, None, None]
    np.testing.assert_allclose(layer(jnp.asarray(x)), x * gate, atol=1e-5)


def test_drop_path_drops_whole_examples():
    layer, x = drop_path(0.25), jnp.ones((4000, 2, 2, 3))
    y = np.asarray(layer(x, rngs=nnx.Rngs(dropout=1)))
    dropped = (y == 0).all((1, 2, 3))
    np.testing.assert_allclose(y[~dropped], 1 / 0.75, rtol=1e-6)
    # Four standard deviations of the mean of 4,000 draws.
    assert dropped.mean() == pytest.approx(0.25, abs=0.028)
    again = np.asarray(layer(x, rngs=nnx.Rngs(dropout=1)))
    np.testing.assert_array_equal(y, again)
    layer.eval()
    np.testing.assert_array_equal(layer(x), x)
