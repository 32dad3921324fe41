"""Activation functions, computed in at least float32 and rounded once.

Half precision would be rounded in every step of their formulas. ReLU, which rounds
nothing, is that of Flax.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx

from jaxtrain.dtypes import wide

Activation = Callable[[jax.Array], jax.Array]


def _in_wide(function: Activation) -> Activation:
    @functools.wraps(function)
    def rounded(x: jax.Array) -> jax.Array:
        return function(x.astype(wide(x.dtype))).astype(x.dtype)

    return rounded


@jax.custom_vjp
def relu(x: jax.Array) -> jax.Array:
    """Return max(x, 0), for a sum of arrays.

    The derivative is told from the result, which the next layer keeps anyway. From `x`,
    as Flax does, a GPU would add up the arrays once more (`benchmarks/RESULTS.md`).
    """
    return nnx.relu(x)


def _relu_forward(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    y = nnx.relu(x)
    return y, y


def _relu_backward(y: jax.Array, dy: jax.Array) -> tuple[jax.Array]:
    # Not `y > 0`: the compiler knows that it equals `x > 0`, and computes that.
    return (jnp.where(y != 0, dy, 0),)


relu.defvjp(_relu_forward, _relu_backward)


@_in_wide
def gelu(x: jax.Array) -> jax.Array:
    """Return x times the normal distribution's P(X < x) (arXiv:1606.08415)."""
    return jax.nn.gelu(x, approximate=False)


@_in_wide
def gelu_tanh(x: jax.Array) -> jax.Array:
    """Return the approximation of `gelu` by tanh, up to 5e-4 off."""
    return jax.nn.gelu(x, approximate=True)


@_in_wide
def silu(x: jax.Array) -> jax.Array:
    """Return x * sigmoid(x), also known as swish."""
    return jax.nn.silu(x)


@_in_wide
def hard_sigmoid(x: jax.Array) -> jax.Array:
    """Return x / 6 + 1/2, between 0 and 1."""
    return jax.nn.hard_sigmoid(x)


@_in_wide
def hard_swish(x: jax.Array) -> jax.Array:
    """Return x * hard_sigmoid(x) (arXiv:1905.02244)."""
    return jax.nn.hard_swish(x)
