"""Pooling functions."""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxtrain.dtypes import wide
from jaxtrain.models.window_max import Windows, block_max, window_max

# Padding: a number for all sides; (rows at top and bottom, columns at left and right);
# or "SAME". With "SAME", the output size is image size / stride, rounded up; if the
# total padding is odd, the bottom or right has one row or column more.
Padding = int | tuple[int, int] | Literal["SAME"]


def sides(padding: Padding) -> Any:
    """Convert a padding to JAX's form: (low, high) for each image dim, or "SAME"."""
    if padding == "SAME":
        return padding
    rows, columns = pair(padding)
    return ((rows, rows), (columns, columns))


def pair(value: int | tuple[int, int]) -> tuple[int, int]:
    """Return (value, value) for an int; return a tuple unchanged."""
    return value if isinstance(value, tuple) else (value, value)


def average_pool(
    x: jax.Array,
    size: int | tuple[int, int],
    *,
    stride: int | None = None,
    padding: Padding = 0,
    count_padding: bool = True,
) -> jax.Array:
    """Apply average pooling, with sums in at least float32.

    Args:
      x: Images (batch, rows, columns, channels).
      size: Number of rows and columns of a window.
      stride: Stride of the windows. Defaults to `size`.
      padding: Zero padding of the images.
      count_padding: Whether means include the zero padding, as in PyTorch by default.
    """
    window = (1, *pair(size), 1)
    strides = window if stride is None else (1, stride, stride, 1)
    around = sides(padding)
    if around != "SAME":
        around = ((0, 0), *around, (0, 0))

    def sums(x: jax.Array) -> jax.Array:
        # A NumPy zero, as JAX cannot differentiate reductions with a traced initial
        # value.
        zero = np.zeros((), x.dtype)
        return lax.reduce_window(x, zero, lax.add, window, strides, around)

    wide_x = x.astype(wide(x.dtype))
    count: Any = window[1] * window[2]
    if not count_padding:
        count = sums(jnp.ones_like(wide_x[:1, :, :, :1]))
    return (sums(wide_x) / count).astype(x.dtype)


def max_pool(x: jax.Array, *, keep_rest: bool = False) -> jax.Array:
    """Apply 2x2 max pooling with stride 2.

    With odd height or width, the last row or column is dropped or, if `keep_rest` is
    set, pooled in smaller windows.

    The result and its gradient are the same as with `nnx.max_pool(x, (2, 2), (2, 2))`,
    but the backward pass does not use XLA's select-and-scatter, so that training steps
    on CPUs are 1.7 to 2 times as fast.
    """
    if keep_rest and (x.shape[1] % 2 or x.shape[2] % 2):
        rest: Any = ((0, 0), (0, x.shape[1] % 2), (0, x.shape[2] % 2), (0, 0))
        x = jnp.pad(x, rest, constant_values=-jnp.inf)
    height, width = x.shape[1] // 2, x.shape[2] // 2
    return block_max(x[:, : 2 * height, : 2 * width])


def max_pool_3x3(
    x: jax.Array, *, stride: int, padding: int = 0, keep_rest: bool = False
) -> jax.Array:
    """Apply 3x3 max pooling.

    Args:
      x: Images (batch, rows, columns, channels).
      stride: Stride of the windows.
      padding: Padding with negative infinity.
      keep_rest: Whether to include incomplete windows at the bottom and right
        (PyTorch's `ceil_mode`).
    """
    rows, columns = x.shape[1:3]
    top, left = (
        (padding, padding + (keep_rest and -(n + 2 * padding - 3) % stride))
        for n in (rows, columns)
    )
    return window_max(Windows(3, stride, (top, left), (rows, columns)), x)


def adaptive_average_pool(x: jax.Array, size: int | tuple[int, int]) -> jax.Array:
    """Apply adaptive average pooling to a fixed size, as in PyTorch.

    For n input rows, window i covers the rows from floor(i * n / size) up to, but not
    including, ceil((i + 1) * n / size). Windows overlap by at most one row. If n <
    size, rows are repeated. The same applies to columns. Sums are in at least float32.

    Args:
      x: Images (batch, rows, columns, channels).
      size: Number of rows and columns of the result.
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
    """Flatten all dims after the first."""
    return x.reshape(x.shape[0], -1)
