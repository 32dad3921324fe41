"""Activation functions, computed in at least float32 and rounded once.

In half precision, every intermediate result would be rounded. ReLU has no intermediate
results, so models use `nnx.relu`, or `relu` after residual additions.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx

from jaxtrain.dtypes import wide

Activation = Callable[[jax.Array], jax.Array]


def _in_wide(function: Activation) -> Activation:
    def rounded(x: jax.Array) -> jax.Array:
        return function(x.astype(wide(x.dtype))).astype(x.dtype)

    return rounded


@jax.custom_vjp
def relu(x: jax.Array) -> jax.Array:
    """ReLU with a gradient computed from its output, for use after additions.

    The output is stored anyway, as the input of the next layer. For the gradient of
    `nnx.relu`, which needs `x`, a GPU recomputes the addition
    (`benchmarks/RESULTS.md`).
    """
    return nnx.relu(x)


def _relu_forward(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    y = nnx.relu(x)
    return y, y


def _relu_backward(y: jax.Array, dy: jax.Array) -> tuple[jax.Array]:
    # Not `y > 0`, which the compiler would rewrite to `x > 0`.
    return (jnp.where(y != 0, dy, 0),)


relu.defvjp(_relu_forward, _relu_backward)


# gelu: x * CDF(x) of the standard normal distribution (arXiv:1606.08415). The backward
# pass recomputes the CDF, as XLA:GPU would store it in float32
# (`benchmarks/RESULTS.md`).
gelu = jax.checkpoint(_in_wide(functools.partial(jax.nn.gelu, approximate=False)))
# silu: x * sigmoid(x), also known as swish.
silu = _in_wide(jax.nn.silu)
# hard_sigmoid: x / 6 + 1/2, clipped to 0..1. hard_swish: x * hard_sigmoid(x)
# (arXiv:1905.02244).
hard_sigmoid = _in_wide(jax.nn.hard_sigmoid)
hard_swish = _in_wide(jax.nn.hard_swish)
