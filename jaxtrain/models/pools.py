"""Functions that make images smaller, or take their rows and columns away."""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxtrain.dtypes import wide
from jaxtrain.models.window_max import Windows, block_max, window_max

# Rows and columns added on each side: as many on all four, those above and below and
# those left and right, or as many as leave 1 / stride of the image, where an odd one is
# added at the bottom and the right.
Padding = int | tuple[int, int] | Literal["SAME"]


def sides(padding: Padding) -> Any:
    """Return the padding as Flax and JAX take it."""
    if padding == "SAME":
        return padding
    rows, columns = pair(padding)
    return ((rows, rows), (columns, columns))


def pair(value: int | tuple[int, int]) -> tuple[int, int]:
    """Return the values for rows and for columns."""
    return value if isinstance(value, tuple) else (value, value)


def average_pool(
    x: jax.Array,
    size: int | tuple[int, int],
    *,
    stride: int | None = None,
    padding: Padding = 0,
    count_padding: bool = True,
) -> jax.Array:
    """Take the mean of each window, summed up in at least float32.

    Args:
      x: (batch, rows, columns, channels).
      size: rows and columns of a window.
      stride: from window to window; None: `size`.
      padding: zeros around the image.
      count_padding: whether these count in the means, as in PyTorch by default.
    """
    window = (1, *pair(size), 1)
    strides = window if stride is None else (1, stride, stride, 1)
    around = sides(padding)
    if around != "SAME":
        around = ((0, 0), *around, (0, 0))

    def sums(x: jax.Array) -> jax.Array:
        # A constant: JAX differentiates no sums that begin with a traced number.
        zero = np.zeros((), x.dtype)
        return lax.reduce_window(x, zero, lax.add, window, strides, around)

    wide_x = x.astype(wide(x.dtype))
    count: Any = window[1] * window[2]
    if not count_padding:
        count = sums(jnp.ones_like(wide_x[:1, :, :, :1]))
    return (sums(wide_x) / count).astype(x.dtype)


def max_pool(x: jax.Array, *, keep_rest: bool = False) -> jax.Array:
    """Take the maximum of each 2x2 window.

    An odd last row or column is left out, or has windows of its own (`keep_rest`).

    Equals `nnx.max_pool(x, (2, 2), (2, 2))`, gradient included. The gradient of
    nnx.max_pool is a select-and-scatter: without it a whole training step was measured
    1.7 to 2 times as fast on CPU.
    """
    if keep_rest and (x.shape[1] % 2 or x.shape[2] % 2):
        rest: Any = ((0, 0), (0, x.shape[1] % 2), (0, x.shape[2] % 2), (0, 0))
        x = jnp.pad(x, rest, constant_values=-jnp.inf)
    height, width = x.shape[1] // 2, x.shape[2] // 2
    return block_max(x[:, : 2 * height, : 2 * width])


def max_pool_3x3(
    x: jax.Array, *, stride: int, padding: int = 0, keep_rest: bool = False
) -> jax.Array:
    """Take the maximum of each 3x3 window.

    Args:
      x: (batch, rows, columns, channels).
      stride: from window to window.
      padding: rows and columns around the image, which never are the maximum.
      keep_rest: whether what is left at the bottom and the right, too little for a
        window, gets one that reaches beyond the image (PyTorch's `ceil_mode`).
    """
    rows, columns = x.shape[1:3]
    top, left = (
        (padding, padding + (keep_rest and -(n + 2 * padding - 3) % stride))
        for n in (rows, columns)
    )
    return window_max(Windows(3, stride, (top, left), (rows, columns)), x)


def adaptive_average_pool(x: jax.Array, size: int | tuple[int, int]) -> jax.Array:
    """Take the means of windows that cover an image of any size, as PyTorch does.

    Of n rows, window i of `size` has those from floor(i n / size) up to, but not
    including, ceil((i + 1) n / size): neighbours share up to one, and of an image of
    fewer rows each is repeated. Sums are those of at least float32.

    Args:
      x: (batch, rows, columns, channels).
      size: rows and columns of the result.
    """
    means = x.astype(wide(x.dtype))
    for dim, num in enumerate(pair(size), 1):
        means = _window_means(means, dim, num)
    return means.astype(x.dtype)


def _window_means(x: jax.Array, dim: int, num: int) -> jax.Array:
    length = x.shape[dim]
    if length == num:
        return x
    means = [
        lax.slice_in_dim(
            x, i * length // num, -(-(i + 1) * length // num), axis=dim
        ).mean(dim, keepdims=True)
        for i in range(num)
    ]
    return jnp.concatenate(means, axis=dim)


def flatten(x: jax.Array) -> jax.Array:
    """Join all dims but the first."""
    return x.reshape(x.shape[0], -1)
