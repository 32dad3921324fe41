"""Rounded numbers are those of the formulas and of PyTorch; gradients pass through."""

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxtrain.plugins.quantization.fake_quantization import (
    MOMENTUM,
    ActivationRange,
    fake_quantize,
    fake_quantize_kernel,
    integers_of,
)
from tests.helpers.processes import ROOT

STORED = json.loads((ROOT / "tests" / "stored" / "fake_quantization.json").read_text())


def squares(function: Any, *rest: Any) -> Any:
    """Return the function's result and the gradient of the sum of its squares."""

    def loss(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        y = function(x, *rest)
        return (y**2).sum(), y

    def both(x: Any) -> Any:
        gradient, y = jax.grad(loss, has_aux=True)(x)
        return np.asarray(y), np.asarray(gradient)

    return both


@pytest.mark.parametrize("row", STORED["activations"], ids=lambda r: str(r["low"]))
def test_activations_are_rounded_as_in_pytorch(row: dict[str, Any]):
    """Up to the last bits of a product with the scale, which PyTorch inverts first."""
    x = jnp.asarray(row["x"], jnp.float32)
    y, gradient = squares(fake_quantize, *map(jnp.float32, (row["low"], row["high"])))(
        x
    )
    np.testing.assert_allclose(y, row["y"], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(gradient, row["gradient"], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("row", STORED["kernels"], ids=lambda r: str(len(r["x"])))
def test_kernels_are_rounded_as_in_pytorch(row: dict[str, Any]):
    kernel = jnp.asarray(row["x"], jnp.float32)
    y, gradient = squares(fake_quantize_kernel)(kernel)
    np.testing.assert_allclose(y, row["y"], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(gradient, row["gradient"], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("shape", [(3, 3, 4, 6), (5, 6)])
def test_a_norm_that_is_folded_changes_no_integer(shape: tuple[int, ...]):
    """So training need not fold it; a negative factor changes their signs."""
    rng = np.random.default_rng(0)
    kernel, factor = rng.normal(size=shape), rng.normal(size=shape[-1:])
    factor[1] = 0
    kernel = kernel.astype(np.float32)
    rounded = np.asarray(fake_quantize_kernel(kernel), np.float64)
    found = integers_of(rounded * factor)
    alone = integers_of(rounded)
    assert found is not None and alone is not None
    np.testing.assert_array_equal(found[0], alone[0] * np.sign(factor))
    folded = integers_of(np.asarray(fake_quantize_kernel(kernel * factor), np.float64))
    assert folded is not None
    np.testing.assert_array_equal(folded[0], found[0])
    np.testing.assert_allclose((found[0] * found[1]), rounded * factor, atol=1e-12)
    assert np.abs(alone[0]).reshape(-1, shape[-1]).max(0).tolist() == [127] * shape[-1]
    assert integers_of(kernel) is None


def test_a_range_is_a_moving_average_and_may_stay():
    layer = ActivationRange(jnp.float32)
    layer(jnp.array([0.5, 3.0]))
    assert (float(layer.low[...]), float(layer.high[...])) == (0.0, 3.0)
    layer(jnp.array([-1.0, 1.0]))
    expected = (1 - MOMENTUM) * -1, MOMENTUM * 3 + (1 - MOMENTUM)
    found = float(layer.low[...]), float(layer.high[...])
    assert found == pytest.approx(expected)
    nnx.Module.eval(layer)
    layer(jnp.array([-9.0, 9.0]))
    assert (float(layer.low[...]), float(layer.high[...])) == found


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_narrow_numbers_keep_their_dtype(dtype: Any):
    x = jnp.linspace(-1, 2, 17).astype(dtype)
    layer = ActivationRange(dtype)
    y, kernel = layer(x), fake_quantize_kernel(x.reshape(-1, 1))
    assert y.dtype == kernel.dtype == dtype
    assert layer.low[...].dtype == layer.high[...].dtype == jnp.float32
    assert np.abs(np.asarray(y - x, np.float32)).max() <= 3 / 255
