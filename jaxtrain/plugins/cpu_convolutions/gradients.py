"""Input and kernel gradients of convolutions on CPUs.

Shapes: images `x` (N, H, W, C), kernels (KH, KW, C / groups, O), output gradients `dy`
(N, HO, WO, O). If `kernel` is a sequence of integers, it is the shape of the kernel.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxtrain.dtypes import wide
from jaxtrain.plugins.cpu_convolutions.products import (
    FEW_FEATURES,
    NHWC,
    PATCHES_AT_ONCE,
    PIXELS_AT_ONCE,
    Moves,
    as_bits,
    convolve_dense,
    convolve_depthwise,
    from_bits,
    make_patches,
    pad,
    pays_as_patches,
    plain,
    shifted,
)

# Up to this number of output pixels, JAX's kernel gradient is faster on XLA:CPU.
FEW_PIXELS = 31


def depthwise_kernel_grad(
    x: jax.Array, kernel: Sequence[int], moves: Moves, dy: jax.Array
) -> jax.Array:
    dtype = wide(x.dtype)

    def add(total: jax.Array, pair: tuple[jax.Array, jax.Array]) -> tuple[Any, None]:
        image, grad = (a[None].astype(dtype) for a in pair)
        parts = shifted(image, kernel[:2], moves, stored=True)
        return total + jnp.stack([(a * grad).sum((0, 1, 2)) for a in parts]), None

    start = jnp.zeros((kernel[0] * kernel[1], kernel[3]), dtype)
    return lax.scan(add, start, (x, dy))[0].reshape(kernel)


def input_grad(
    size: tuple[int, int],
    kernel: jax.Array,
    moves: Moves,
    depthwise: bool,
    dy: jax.Array,
) -> jax.Array:
    """Compute the input gradient, (N, *size, C), by one convolution per stride phase.

    Phase p < stride consists of the image rows p, p + stride, p + 2 * stride, ... Its
    gradient is a convolution of `dy` with every stride-th kernel row, from row
    (p + padding) % stride on. Columns have the same phases.

    Args:
      size: Rows and columns of the images.
      kernel: Kernel of the forward convolution.
      moves: Strides and padding of the forward convolution.
      depthwise: Whether the convolution is depthwise rather than dense.
      dy: Gradient of the outputs, (N, HO, WO, O).
    """
    if kernel.shape[0] < moves.strides[0] or kernel.shape[1] < moves.strides[1]:
        # Some phases have no kernel elements, so JAX's gradient is used.
        groups = dy.shape[-1] if depthwise else 1
        shape = (dy.shape[0], *size, kernel.shape[2] * groups)
        like = jax.ShapeDtypeStruct(shape, dy.dtype)
        convolve = partial(plain, kernel=kernel, moves=moves, groups=groups)
        return jax.linear_transpose(convolve, like)(dy)[0]
    outputs = dy.shape[1:3]
    rows, columns = (
        [_phase(p, stride, pads[0], k, -(-n // stride), n_out) for p in range(stride)]
        for stride, pads, k, n, n_out in zip(
            moves.strides, moves.padding, kernel.shape[:2], size, outputs, strict=True
        )
    )
    function = convolve_depthwise if depthwise else convolve_dense
    down, right = moves.strides

    def phase(row: tuple[int, tuple[int, int]], column: Any) -> jax.Array:
        part = kernel[row[0] :: down, column[0] :: right][::-1, ::-1]
        if not depthwise:
            part = part.swapaxes(2, 3)
        return function(dy, part, Moves((1, 1), (row[1], column[1])))

    if moves.strides == (1, 1):
        return phase(rows[0], columns[0])
    phases = jnp.stack([jnp.stack([phase(r, c) for c in columns], 3) for r in rows], 2)
    num, height, _, width, *_ = phases.shape
    joined = phases.reshape(num, height * down, width * right, -1)
    return joined[:, : size[0], : size[1]]


def _phase(
    phase: int, stride: int, pad: int, kernel: int, inputs: int, outputs: int
) -> tuple[int, tuple[int, int]]:
    """Return the first kernel index of a phase, and the padding of its convolution.

    The kernel elements of a phase are `stride` apart, from the first index on.

    Args:
      phase: Index of the phase, from 0 to stride - 1.
      stride: Stride of the forward convolution.
      pad: Number of zeros before the image, along this axis.
      kernel: Size of the kernel along this axis.
      inputs: Number of pixels of the phase along this axis.
      outputs: Number of outputs of the forward convolution along this axis.
    """
    first = (phase + pad) % stride
    elements = len(range(first, kernel, stride))
    before = elements - 1 - (phase + pad) // stride
    return first, (before, inputs + elements - 1 - outputs - before)


def spread(grads: jax.Array, size: Sequence[int], moves: Moves) -> jax.Array:
    """Dilate output gradients by the strides, and pad with zeros to the image size."""
    holes = [
        (0, inputs - (outputs - 1) * stride - 1, stride - 1)
        for inputs, outputs, stride in zip(
            size, grads.shape[1:3], moves.strides, strict=True
        )
    ]
    zero = jnp.zeros((), grads.dtype)
    return lax.pad(grads, zero, ((0, 0, 0), *holes, (0, 0, 0)))


def grad_of_kernel(
    x: jax.Array, kernel: Sequence[int], moves: Moves, dy: jax.Array
) -> jax.Array:
    """Compute the kernel gradient of a dense convolution, a few images at a time."""
    num, pixels = len(x), dy.shape[1] * dy.shape[2]
    if num > 1 and pays_as_patches(x.dtype, kernel):
        return _from_patches(x, dy, kernel, moves)
    if kernel[3] <= FEW_FEATURES or pixels <= FEW_PIXELS:
        kernel_like = jax.ShapeDtypeStruct(tuple(kernel), x.dtype)
        convolve = partial(plain, moves=moves)
        return jax.linear_transpose(lambda k: convolve(x, k), kernel_like)(dy)[0]
    at_once = 4 if kernel[2] <= 4 else min(4, PIXELS_AT_ONCE // pixels)
    at_once = math.gcd(max(1, at_once), num)
    function = partial(_from_rows, kernel=kernel, moves=moves)
    if at_once == num:
        return function(x, dy)
    parts = jax.tree.map(
        lambda a: a.reshape(num // at_once, at_once, *a.shape[1:]), (x, dy)
    )
    start = jnp.zeros(kernel, wide(x.dtype))
    return lax.scan(lambda total, pair: (total + function(*pair), None), start, parts)[
        0
    ]


def _from_patches(
    x: jax.Array, dy: jax.Array, kernel: Sequence[int], moves: Moves
) -> jax.Array:
    """Compute the kernel gradient by im2col in bfloat16, a few images at a time.

    XLA:CPU has no fast bfloat16 product with a transposed left operand, so `dy` is
    transposed before the loop. The loop has at least two iterations, because XLA would
    move the transpose into a loop of one iteration.
    """
    num, (_, rows, columns, features) = len(x), dy.shape
    most = max(1, PATCHES_AT_ONCE // (rows * columns))
    at_once = 1 if num % 2 else math.gcd(most, num // 2)
    turned = as_bits(dy).reshape(num // at_once, -1, features).swapaxes(1, 2)

    def add(total: jax.Array, pair: tuple[jax.Array, jax.Array]) -> tuple[Any, None]:
        images, grads = pair
        patches = from_bits(make_patches(images, kernel[:2], moves))
        found = lax.dot(from_bits(grads), patches, preferred_element_type=jnp.float32)
        return total + found, None

    images = as_bits(x).reshape(num // at_once, at_once, *x.shape[1:])
    start = jnp.zeros((features, math.prod(kernel[:3])), jnp.float32)
    return lax.scan(add, start, (images, turned))[0].T.reshape(kernel)


def _from_rows(
    x: jax.Array, dy: jax.Array, *, kernel: Sequence[int], moves: Moves
) -> jax.Array:
    """Compute the kernel gradient as a convolution of the images with `dy`.

    The batch is reshaped to one image with one channel, (1, N * H, W * C, 1). The
    kernel of this convolution is `dy`, (N * H / stride, WO, 1, O), dilated by the
    stride along the rows, and by C * stride along the columns. The output, (1, KH,
    KW * C, O), is the kernel gradient.
    """
    num, height, width, channels = x.shape
    _, rows, columns, features = dy.shape
    (down, right), ((top, _), (left, _)) = moves.strides, moves.padding
    need = (rows - 1) * down + kernel[0]
    # Height of a padded image. It is a multiple of the stride, to align the rows of
    # `dy` with the rows of each image.
    tall = need if num == 1 else -(-need // down) * down
    wide_ = (columns - 1) * right + kernel[1]
    dtype = wide(x.dtype)
    x = pad(x.astype(dtype), (top, tall - height - top), (left, wide_ - width - left))
    dy = jnp.pad(
        dy, ((0, 0), (0, tall // down - rows if num > 1 else 0), (0, 0), (0, 0))
    )
    moved = (num * tall - kernel[0]) // down + 1
    x = x.reshape(1, num * tall, wide_ * channels, 1)[
        :, : (moved - 1) * down + kernel[0]
    ]
    dy = dy.astype(dtype).reshape(-1, columns, 1, features)[:moved]
    found = lax.conv_general_dilated(
        x,
        dy,
        (1, 1),
        ((0, 0), (0, 0)),
        rhs_dilation=(down, right * channels),
        dimension_numbers=NHWC,
    )
    return found.reshape(kernel)
