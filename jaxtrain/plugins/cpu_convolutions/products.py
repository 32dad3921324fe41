"""Forward convolutions on CPUs: by matrix products, shifted images, or XLA."""

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxtrain.dtypes import wide

NHWC = ("NHWC", "HWIO", "NHWC")
# Minimum number of output channels for fast convolutions in XLA:CPU; maximum number of
# output columns that are computed together, as channels, to reach this minimum.
ENOUGH_FEATURES, MANY_COLUMNS = 24, 8
# Maximum number of output channels for which JAX's kernel gradient is faster.
FEW_FEATURES = 16
# Minimum number of channels for which im2col in bfloat16 is faster than convolutions,
# which XLA:CPU computes in float32.
MANY_CHANNELS = 64
# Maximum number of im2col patches per matrix product, and of output pixels per
# iteration of a kernel gradient, so that the inputs fit in the L2 cache.
PATCHES_AT_ONCE, PIXELS_AT_ONCE = 256, 512


class Moves(NamedTuple):
    """Strides and zero padding of a convolution, for rows and columns.

    Negative padding crops the image.
    """

    strides: tuple[int, int]
    padding: tuple[tuple[int, int], tuple[int, int]]

    def outputs(self, size: Sequence[int], kernel: Sequence[int]) -> tuple[int, int]:
        """Return the numbers of rows and columns of the output."""
        rows, columns = (
            (n + sum(pads) - k) // stride + 1
            for n, k, stride, pads in zip(
                size, kernel, self.strides, self.padding, strict=True
            )
        )
        return rows, columns


def is_product(kernel: Sequence[int], moves: Moves) -> bool:
    """Whether a convolution is a matrix product: 1x1 without padding."""
    return (*kernel[:2], *moves.padding[0], *moves.padding[1]) == (1, 1, 0, 0, 0, 0)


def product(a: jax.Array, b: jax.Array) -> jax.Array:
    """Multiply matrices; a float32 result makes bfloat16 fast on XLA:CPU."""
    y = lax.dot(a, b, preferred_element_type=wide(a.dtype))
    return y.astype(a.dtype)


def sum_of_products(a: jax.Array, b: jax.Array) -> jax.Array:
    """Compute `a.T @ b` with the wider matrix on the right, which is faster."""
    a, b = a.astype(wide(a.dtype)), b.astype(wide(b.dtype))
    if b.shape[1] >= a.shape[1]:
        return lax.dot_general(a, b, (((0,), (0,)), ((), ())))
    return lax.dot_general(b, a, (((0,), (0,)), ((), ()))).T


def plain(x: jax.Array, kernel: jax.Array, moves: Moves, groups: int = 1) -> jax.Array:
    return lax.conv_general_dilated(
        x,
        kernel,
        moves.strides,
        moves.padding,
        dimension_numbers=NHWC,
        feature_group_count=groups,
    )


def convolve_dense(x: jax.Array, kernel: jax.Array, moves: Moves) -> jax.Array:
    """Convolve with a dense kernel, by im2col and matrix products if this is faster.

    im2col is faster in bfloat16 with many channels, and if the output has fewer pixels
    than the kernel: 70 times as fast with 512 channels and 2x2 output pixels.
    """
    size, (num, *image) = kernel.shape[:2], x.shape
    rows, columns = moves.outputs(image[:2], size)
    many = pays_as_patches(x.dtype, kernel.shape)
    small = 0 < rows * columns < size[0] * size[1]
    if not (many or small):
        return _by_columns(x, kernel, moves)
    at_once = math.gcd(max(1, PATCHES_AT_ONCE // (rows * columns)), num)
    matrix = kernel.reshape(-1, kernel.shape[-1])
    y = lax.map(
        lambda x: as_bits(product(from_bits(make_patches(x, size, moves)), matrix)),
        as_bits(x).reshape(num // at_once, at_once, *image),
    )
    return from_bits(y).reshape(num, rows, columns, -1)


def pays_as_patches(dtype: Any, kernel: Sequence[int]) -> bool:
    """Whether im2col is faster than XLA:CPU's convolution, which uses float32."""
    return dtype == jnp.bfloat16 and min(kernel[2:]) >= MANY_CHANNELS


def as_bits(x: jax.Array) -> jax.Array:
    """View bfloat16 as integers, which XLA:CPU copies without conversion to float32."""
    return lax.bitcast_convert_type(x, jnp.uint16) if x.dtype == jnp.bfloat16 else x


def from_bits(x: jax.Array) -> jax.Array:
    return lax.bitcast_convert_type(x, jnp.bfloat16) if x.dtype == jnp.uint16 else x


def _by_columns(x: jax.Array, kernel: jax.Array, moves: Moves) -> jax.Array:
    """Convolve; with few output channels, compute several output columns at once.

    The output channels of the stacked kernel are copies of the kernel, one per column,
    each shifted by one stride more. XLA:CPU is faster with more output channels, and
    the output only needs a reshape.
    """
    length, width, channels, features = kernel.shape
    _, columns = moves.outputs(x.shape[1:3], (length, width))
    least = -(-ENOUGH_FEATURES // features)
    fits = [n for n in range(least, MANY_COLUMNS + 1) if columns % n == 0]
    if max(channels, features) > FEW_FEATURES or not fits:
        return plain(x, kernel, moves)
    at_once, (down, right) = fits[0], moves.strides
    spread = (at_once - 1) * right
    copies = [
        jnp.pad(kernel, ((0, 0), (i, spread - i), (0, 0), (0, 0)))
        for i in range(0, spread + 1, right)
    ]
    stacked = jnp.stack(copies, 3).reshape(length, width + spread, channels, -1)
    y = plain(x, stacked, Moves((down, right * at_once), moves.padding))
    return y.reshape(*y.shape[:2], columns, features)


def shifted(
    x: jax.Array, kernel: Sequence[int], moves: Moves, *, stored: bool = False
) -> list[jax.Array]:
    """Return an array (N, HO, WO, C) per kernel element: the pixels it reads.

    Args:
      x: Images (N, H, W, C).
      kernel: Height and width of the kernel.
      moves: Strides and padding of the convolution.
      stored: Whether to store the padded images; otherwise XLA may pad them again for
        each slice.
    """
    (top, _), (left, _) = moves.padding
    (down, right), outputs = moves.strides, moves.outputs(x.shape[1:3], kernel)
    height, width = (
        (n - 1) * s + k for n, s, k in zip(outputs, moves.strides, kernel, strict=True)
    )
    x = pad(x, (top, height - x.shape[1] - top), (left, width - x.shape[2] - left))
    if stored:
        x = lax.optimization_barrier(x)
    return [
        x[
            :,
            i : i + height - kernel[0] + 1 : down,
            j : j + width - kernel[1] + 1 : right,
        ]
        for i in range(kernel[0])
        for j in range(kernel[1])
    ]


def pad(x: jax.Array, rows: tuple[int, int], columns: tuple[int, int]) -> jax.Array:
    zero = jnp.zeros((), x.dtype)
    return lax.pad(x, zero, ((0, 0, 0), (*rows, 0), (*columns, 0), (0, 0, 0)))


def make_patches(x: jax.Array, kernel: Sequence[int], moves: Moves) -> jax.Array:
    """Extract patches of the kernel's size (im2col), (N * HO * WO, KH * KW * C)."""
    patches = jnp.concatenate(shifted(x, kernel, moves), -1)
    return patches.reshape(-1, patches.shape[-1])


def convolve_depthwise(x: jax.Array, kernel: jax.Array, moves: Moves) -> jax.Array:
    """Depthwise convolution: a weighted sum of shifted inputs, one image at a time."""
    dtype = wide(x.dtype)
    taps = kernel.reshape(-1, kernel.shape[-1]).astype(dtype)

    def one(image: jax.Array) -> jax.Array:
        parts = shifted(image[None], kernel.shape[:2], moves)
        products = [a.astype(dtype) * tap for a, tap in zip(parts, taps, strict=True)]
        return reduce(jnp.add, products)[0].astype(x.dtype)

    return lax.map(one, x)
