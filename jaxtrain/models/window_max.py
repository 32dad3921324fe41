"""Maxima of windows, with a backward pass of its own.

That of JAX is a select-and-scatter. For it a GPU writes the maxima and their places
anew, in four arrays of 32-bit numbers, and scatters. Here the forward pass keeps which
pixel of its window was the largest, one byte a window, and backwards each pixel gathers
from the windows around it, together with whatever reads the gradient
(`benchmarks/RESULTS.md`).
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
    """Square windows on images of one size."""

    # Rows and columns of a window, and from window to window.
    size: int
    stride: int
    # Rows added above and below, and columns added left and right.
    around: tuple[tuple[int, int], tuple[int, int]]
    # Rows and columns of the images, without those added.
    image: tuple[int, int]

    def places(self) -> list[tuple[int, int]]:
        """Return the rows and columns in a window, in order."""
        return [(i, j) for i in range(self.size) for j in range(self.size)]

    def gather(self, padded: jax.Array, place: tuple[int, int]) -> jax.Array:
        """Return the pixels of all windows at one place."""
        start, limit = (0, *place, 0), (len(padded), *self._end(place), padded.shape[3])
        return lax.slice(padded, start, limit, (1, self.stride, self.stride, 1))

    def scatter(self, values: jax.Array, place: tuple[int, int]) -> jax.Array:
        """Return padded images with the windows' values at one place, 0 elsewhere."""
        dims = [
            (start, sum(around) + length - end, self.stride - 1)
            for start, end, around, length in zip(
                place, self._end(place), self.around, self.image, strict=True
            )
        ]
        zero = jnp.zeros((), values.dtype)
        return lax.pad(values, zero, [(0, 0, 0), *dims, (0, 0, 0)])

    def crop(self, padded: jax.Array) -> jax.Array:
        """Take the rows and columns added away."""
        (top, _), (left, _) = self.around
        rows, columns = self.image
        return padded[:, top : top + rows, left : left + columns]

    def _end(self, place: tuple[int, int]) -> list[int]:
        return [
            at + (sum(around) + length - self.size) // self.stride * self.stride + 1
            for at, around, length in zip(place, self.around, self.image, strict=True)
        ]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def window_max(windows: Windows, x: jax.Array) -> jax.Array:
    """Take the maximum of each window; of equal ones the first has the gradient.

    Args:
      windows: on `x`, with fewer rows and columns added than a window has.
      x: (batch, rows, columns, channels).
    """
    size, stride = (windows.size,) * 2, (windows.stride,) * 2
    around: Any = windows.around
    return nnx.max_pool(x, size, stride, around)


def _forward(windows: Windows, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    lowest = jnp.array(-jnp.inf, x.dtype)
    rows, columns = ((*around, 0) for around in windows.around)
    padded = lax.pad(x, lowest, [(0, 0, 0), rows, columns, (0, 0, 0)])
    return _largest(windows.gather(padded, place) for place in windows.places())


def _backward(windows: Windows, winner: jax.Array, dy: jax.Array) -> tuple[jax.Array]:
    wide_dy = dy.astype(wide(dy.dtype))
    parts = [
        windows.scatter(jnp.where(winner == index, wide_dy, 0), place)
        for index, place in enumerate(windows.places())
    ]
    # Cropped as one, and not each: XLA fails to split such parts by rows over devices.
    return (windows.crop(functools.reduce(jnp.add, parts)).astype(dy.dtype),)


window_max.defvjp(_forward, _backward)


@jax.custom_vjp
def block_max(x: jax.Array) -> jax.Array:
    """Take the maximum of each 2x2 block; of equal values the first has the gradient.

    The gradient that JAX finds of `max` compares the maxima with `x`, which a compiler
    may compute anew for it, in a kernel that rounds otherwise: then no value equals the
    maximum, and the gradient is lost or not finite. So XLA:CPU does at
    `--xla_backend_optimization_level=0` (docs/decisions.md).

    Args:
      x: (batch, rows, columns, channels), of even numbers of rows and columns.
    """
    return _blocks(x).max((2, 4))


def _blocks(x: jax.Array) -> jax.Array:
    """Return (batch, rows / 2, 2, columns / 2, 2, channels)."""
    batch, rows, columns, channels = x.shape
    return x.reshape(batch, rows // 2, 2, columns // 2, 2, channels)


def _block_forward(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    blocks = _blocks(x)
    return _largest(blocks[:, :, i, :, j] for i in (0, 1) for j in (0, 1))


def _block_backward(winner: jax.Array, dy: jax.Array) -> tuple[jax.Array]:
    batch, rows, columns, channels = dy.shape
    place = jnp.arange(4, dtype=jnp.int8).reshape(2, 1, 2, 1)
    winner, dy = (a[:, :, None, :, None] for a in (winner, dy))
    dx = jnp.where(winner == place, dy, 0)
    return (dx.reshape(batch, 2 * rows, 2 * columns, channels),)


block_max.defvjp(_block_forward, _block_backward)


def _largest(values: Iterable[jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Return the largest of several arrays, and the number of the first that has it.

    Args:
      values: Arrays of one shape, at most 127.

    Returns:
      The elementwise maximum, and int8 indices into `values`, both of that shape.
    """
    y, *others = values
    winner = jnp.zeros(y.shape, jnp.int8)
    for index, value in enumerate(others, 1):
        winner = jnp.where(y >= value, winner, jnp.int8(index))
        y = jnp.maximum(y, value)
    return y, winner
