"""Activation functions, computed in at least float32 and rounded once.

In half precision every step of a formula would be rounded. ReLU, which does not round,
is Flax's.
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
    """Compute max(x, 0) of a sum of arrays.

    The derivative is computed from the result, which the next layer stores anyway. From
    `x`, as in Flax, a GPU would recompute the sum (`benchmarks/RESULTS.md`).
    """
    return nnx.relu(x)


def _relu_forward(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    y = nnx.relu(x)
    return y, y


def _relu_backward(y: jax.Array, dy: jax.Array) -> tuple[jax.Array]:
    # Not `y > 0`: the compiler would rewrite it to `x > 0`.
    return (jnp.where(y != 0, dy, 0),)


relu.defvjp(_relu_forward, _relu_backward)


# x times the normal distribution's P(X < x) (arXiv:1606.08415). The backward pass
# computes it again from x: XLA:GPU would store a float32 value of the error function
# (`benchmarks/RESULTS.md`).
gelu = jax.checkpoint(_in_wide(functools.partial(jax.nn.gelu, approximate=False)))
# x * sigmoid(x), also known as swish.
silu = _in_wide(jax.nn.silu)
# x / 6 + 1/2, between 0 and 1; and x times this (arXiv:1905.02244).
hard_sigmoid = _in_wide(jax.nn.hard_sigmoid)
hard_swish = _in_wide(jax.nn.hard_swish)
