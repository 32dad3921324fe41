"""Max pooling with a custom backward pass.

JAX's backward pass is a select-and-scatter, which on GPUs recomputes the maxima and
their positions, in four 32-bit arrays, and scatters the gradients to these positions.
The custom forward pass stores the position of each maximum, in one byte per window. In
the custom backward pass, each pixel gathers the gradients of its windows, and XLA fuses
the gather with subsequent operations (`benchmarks/RESULTS.md`).
"""

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from jaxtrain.dtypes import wide


@dataclass(frozen=True)
class Windows:
    """Square pooling windows on images of a fixed size."""

    # Height and width of a window, and stride, in pixels.
    size: int
    stride: int
    # Padding in pixels: (top, bottom), (left, right).
    around: tuple[tuple[int, int], tuple[int, int]]
    # Height and width of the images without padding.
    image: tuple[int, int]

    def positions(self) -> list[tuple[int, int]]:
        """List the positions (row, column) in a window, row by row."""
        return [(i, j) for i in range(self.size) for j in range(self.size)]

    def gather(self, padded: jax.Array, position: tuple[int, int]) -> jax.Array:
        """Select the pixel at a position (row, column) of every window."""
        start, limit = (
            (0, *position, 0),
            (len(padded), *self._end(position), padded.shape[3]),
        )
        return lax.slice(padded, start, limit, (1, self.stride, self.stride, 1))

    def scatter(self, values: jax.Array, position: tuple[int, int]) -> jax.Array:
        """Create padded images of zeros with `values` at a position of every window."""
        dims = [
            (start, sum(around) + length - end, self.stride - 1)
            for start, end, around, length in zip(
                position, self._end(position), self.around, self.image, strict=True
            )
        ]
        zero = jnp.zeros((), values.dtype)
        return lax.pad(values, zero, [(0, 0, 0), *dims, (0, 0, 0)])

    def crop(self, padded: jax.Array) -> jax.Array:
        """Remove the padding from images."""
        (top, _), (left, _) = self.around
        rows, columns = self.image
        return padded[:, top : top + rows, left : left + columns]

    def _end(self, position: tuple[int, int]) -> list[int]:
        return [
            at + (sum(around) + length - self.size) // self.stride * self.stride + 1
            for at, around, length in zip(
                position, self.around, self.image, strict=True
            )
        ]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def window_max(windows: Windows, x: jax.Array) -> jax.Array:
    """Max pooling; the gradient goes to the first maximum of each window.

    Args:
      windows: Windows on `x`, with padding smaller than a window.
      x: Images (batch, rows, columns, channels).
    """
    size, stride = (windows.size,) * 2, (windows.stride,) * 2
    around: Any = windows.around
    return nnx.max_pool(x, size, stride, around)


def _forward(windows: Windows, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    lowest = jnp.array(-jnp.inf, x.dtype)
    rows, columns = ((*around, 0) for around in windows.around)
    padded = lax.pad(x, lowest, [(0, 0, 0), rows, columns, (0, 0, 0)])
    return _largest(
        windows.gather(padded, position) for position in windows.positions()
    )


def _backward(windows: Windows, winner: jax.Array, dy: jax.Array) -> tuple[jax.Array]:
    wide_dy = dy.astype(wide(dy.dtype))
    parts = [
        windows.scatter(jnp.where(winner == index, wide_dy, 0), position)
        for index, position in enumerate(windows.positions())
    ]
    # Crop once, after the sum: XLA fails to shard sums of cropped arrays by rows.
    return (windows.crop(functools.reduce(jnp.add, parts)).astype(dy.dtype),)


window_max.defvjp(_forward, _backward)


@jax.custom_vjp
def block_max(x: jax.Array) -> jax.Array:
    """2x2 max pooling; the gradient goes to the first maximum of each window.

    JAX's gradient of `max` compares the maxima with `x`, which XLA may recompute with
    different rounding. If no value equals the maximum, the gradient is lost or
    non-finite, for example on CPUs with `--xla_backend_optimization_level=0`
    (docs/decisions.md).

    Args:
      x: Images (batch, rows, columns, channels) of even height and width.
    """
    return _blocks(x).max((2, 4))


def _blocks(x: jax.Array) -> jax.Array:
    """Reshape to (batch, rows / 2, 2, columns / 2, 2, channels)."""
    batch, rows, columns, channels = x.shape
    return x.reshape(batch, rows // 2, 2, columns // 2, 2, channels)


def _block_forward(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    blocks = _blocks(x)
    return _largest(blocks[:, :, i, :, j] for i in (0, 1) for j in (0, 1))


def _block_backward(winner: jax.Array, dy: jax.Array) -> tuple[jax.Array]:
    batch, rows, columns, channels = dy.shape
    position = jnp.arange(4, dtype=jnp.int8).reshape(2, 1, 2, 1)
    winner, dy = (a[:, :, None, :, None] for a in (winner, dy))
    dx = jnp.where(winner == position, dy, 0)
    return (dx.reshape(batch, 2 * rows, 2 * columns, channels),)


block_max.defvjp(_block_forward, _block_backward)


def _largest(values: Iterable[jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Elementwise maximum of arrays, and the index of the first array that has it.

    Args:
      values: Arrays of equal shape, at most 127 arrays.

    Returns:
      Elementwise maximum, and indices into `values`, int8 with the shape of the arrays.
    """
    y, *others = values
    winner = jnp.zeros(y.shape, jnp.int8)
    for index, value in enumerate(others, 1):
        winner = jnp.where(y >= value, winner, jnp.int8(index))
        y = jnp.maximum(y, value)
    return y, winner
