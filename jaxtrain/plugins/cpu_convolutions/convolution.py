"""Convolutions that are fast on CPUs, and whose gradients are.

XLA:CPU has fast kernels for products of matrices and for plain convolutions. The
gradients as JAX writes them are neither: that of a kernel is a convolution whose
"channels" are images, that of the input of a strided one is dilated with zeros. Both
can be written as what is fast; `benchmarks/convolutions.py` measures the difference.

Arrays are images (N, H, W, C), kernels (KH, KW, C / groups, O) and outputs
(N, HO, WO, O), and gradients have the shapes of what they are of.
"""

import math
from collections.abc import Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from jaxtrain.dtypes import wide
from jaxtrain.parallel.mesh import BATCH_AXES

NHWC = ("NHWC", "HWIO", "NHWC")
# Up to so many output channels, or output pixels, XLA:CPU computes the gradient of a
# kernel faster as JAX writes it.
FEW_FEATURES, FEW_PIXELS = 16, 31
# Output channels that have fast kernels, and columns that may make up as many.
ENOUGH_FEATURES, MANY_COLUMNS = 24, 8
# Channels from which bfloat16 products of patches are faster than convolutions, which
# XLA:CPU computes in float32.
MANY_CHANNELS = 64
# Rows of patches in one product, and output pixels in one pass over some images: what
# they read stays in the second-level cache.
PATCHES_AT_ONCE, PIXELS_AT_ONCE = 256, 512


class Moves(NamedTuple):
    """How a kernel moves over an image: strides and zero padding, of rows and columns.

    Negative padding leaves out pixels of the image.
    """

    strides: tuple[int, int]
    padding: tuple[tuple[int, int], tuple[int, int]]

    def outputs(self, size: Sequence[int], kernel: Sequence[int]) -> tuple[int, int]:
        """Return the rows and columns of the output."""
        rows, columns = (
            (n + sum(pads) - k) // stride + 1
            for n, k, stride, pads in zip(
                size, kernel, self.strides, self.padding, strict=True
            )
        )
        return rows, columns


def use_cpu_convolutions(model: nnx.Module, mesh: Mesh) -> None:
    """Make the convolutions of a model those of this module.

    Args:
      model: Model to change.
      mesh: Mesh of the CPU devices, which may share the batch and nothing else.
    """
    for _, layer in nnx.iter_modules(model):
        # A user's layer may convolve in a way of its own.
        convolves = getattr(layer, "conv_general_dilated", None)
        if convolves is lax.conv_general_dilated:
            alone = mesh.size == 1 or getattr(layer, "mesh", None) is not None
            ours = conv_general_dilated if alone else partial(_on_each, mesh)
            layer.conv_general_dilated = ours  # pyright: ignore


def _on_each(
    mesh: Mesh, x: jax.Array, kernel: jax.Array, *args: Any, **options: Any
) -> jax.Array:
    """Convolve on each device what it has of a batch.

    What XLA would split by itself is a scan over images: it would gather them all.
    """
    batch = P(BATCH_AXES)
    return jax.shard_map(
        lambda x, kernel: conv_general_dilated(x, kernel, *args, **options),
        mesh=mesh,
        in_specs=(batch, P()),
        out_specs=batch,
        # Would have the sums of a scan told apart from zeros that all devices share.
        check_vma=False,
    )(x, kernel)


def conv_general_dilated(
    x: jax.Array,
    kernel: jax.Array,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    **options: Any,
) -> jax.Array:
    """Convolve as `jax.lax.conv_general_dilated`, but fast on CPUs.

    The output and the gradients are the same sums in another order. Dilated kernels,
    groups of several channels, arrays that are no images and a precision of their own
    are left to `lax`. There is no forward mode (`jax.jvp`).
    """
    dilated = {*(lhs_dilation or ()), *(rhs_dilation or ())} - {1}
    grouped = feature_group_count > 1
    depthwise = feature_group_count == x.shape[-1] == kernel.shape[-1]
    asked = any(value is not None for value in options.values())
    if x.ndim != 4 or dilated or asked or (grouped and not depthwise):
        return lax.conv_general_dilated(
            x,
            kernel,
            window_strides,
            padding,
            lhs_dilation,
            rhs_dilation,
            dimension_numbers,
            feature_group_count,
            **options,
        )
    if isinstance(padding, str):
        padding = lax.padtype_to_pads(
            x.shape[1:3], kernel.shape[:2], window_strides, padding
        )
    (top, bottom), (left, right) = padding
    rows, columns = window_strides
    moves = Moves((rows, columns), ((top, bottom), (left, right)))
    return _convolve(x, kernel, moves, grouped)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _convolve(
    x: jax.Array, kernel: jax.Array, moves: Moves, depthwise: bool
) -> jax.Array:
    if depthwise:
        return _depthwise(x, kernel, moves)
    if _is_product(kernel.shape, moves):
        rows, columns = moves.strides
        x = x[:, ::rows, ::columns]
        y = _product(x.reshape(-1, x.shape[-1]), kernel[0, 0])
        return y.reshape(*x.shape[:3], -1)
    return _dense(x, kernel, moves)


def _forward(
    x: jax.Array, kernel: jax.Array, moves: Moves, depthwise: bool
) -> tuple[jax.Array, Any]:
    return _convolve(x, kernel, moves, depthwise), (x, kernel)


def _backward(
    moves: Moves, depthwise: bool, residuals: Any, dy: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x, kernel = residuals
    if _is_product(kernel.shape, moves) and not depthwise:
        rows, columns = moves.strides
        grads = dy.reshape(-1, dy.shape[-1])
        x_grad = _product(grads, kernel[0, 0].T).reshape(*dy.shape[:3], -1)
        x_grad = _spread(x_grad, x.shape[1:3], moves)
        used = x[:, ::rows, ::columns].reshape(-1, x.shape[-1])
        kernel_grad = _sum_of_products(used, grads)[None, None]
    else:
        x_grad = _input_grad(x.shape[1:3], kernel, moves, depthwise, dy)
        if depthwise:
            kernel_grad = _depthwise_kernel_grad(x, kernel.shape, moves, dy)
        else:
            kernel_grad = _kernel_grad(x, kernel.shape, moves, dy)
    return x_grad, kernel_grad.astype(kernel.dtype)


_convolve.defvjp(_forward, _backward)


def _is_product(kernel: Sequence[int], moves: Moves) -> bool:
    """Return whether a convolution is a product of matrices: 1x1, not padded."""
    return (*kernel[:2], *moves.padding[0], *moves.padding[1]) == (1, 1, 0, 0, 0, 0)


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    """Multiply matrices; bfloat16 is fast only where the result is float32."""
    y = lax.dot(a, b, preferred_element_type=wide(a.dtype))
    return y.astype(a.dtype)


def _sum_of_products(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return the transposed `a` times `b`; fast where the right one is the wider."""
    a, b = a.astype(wide(a.dtype)), b.astype(wide(b.dtype))
    if b.shape[1] >= a.shape[1]:
        return lax.dot_general(a, b, (((0,), (0,)), ((), ())))
    return lax.dot_general(b, a, (((0,), (0,)), ((), ()))).T


def _plain(x: jax.Array, kernel: jax.Array, moves: Moves, groups: int = 1) -> jax.Array:
    return lax.conv_general_dilated(
        x,
        kernel,
        moves.strides,
        moves.padding,
        dimension_numbers=NHWC,
        feature_group_count=groups,
    )


def _dense(x: jax.Array, kernel: jax.Array, moves: Moves) -> jax.Array:
    """Convolve; as products of patches, if these are faster.

    So they are in bfloat16 of many channels, and of images smaller than the kernel: 512
    channels of 2x2 pixels take a seventieth of the time.
    """
    size, (num, *image) = kernel.shape[:2], x.shape
    rows, columns = moves.outputs(image[:2], size)
    many = _pays_as_patches(x.dtype, kernel.shape)
    small = 0 < rows * columns < size[0] * size[1]
    if not (many or small):
        return _by_columns(x, kernel, moves)
    at_once = math.gcd(max(1, PATCHES_AT_ONCE // (rows * columns)), num)
    matrix = kernel.reshape(-1, kernel.shape[-1])
    y = lax.map(
        lambda x: _as_bits(_product(_from_bits(_patches(x, size, moves)), matrix)),
        _as_bits(x).reshape(num // at_once, at_once, *image),
    )
    return _from_bits(y).reshape(num, rows, columns, -1)


def _pays_as_patches(dtype: Any, kernel: Sequence[int]) -> bool:
    """Whether products of patches are faster than what XLA:CPU does in float32."""
    return dtype == jnp.bfloat16 and min(kernel[2:]) >= MANY_CHANNELS


def _as_bits(x: jax.Array) -> jax.Array:
    """View bfloat16 as integers, which XLA:CPU copies without a detour to float32."""
    return lax.bitcast_convert_type(x, jnp.uint16) if x.dtype == jnp.bfloat16 else x


def _from_bits(x: jax.Array) -> jax.Array:
    return lax.bitcast_convert_type(x, jnp.bfloat16) if x.dtype == jnp.uint16 else x


def _by_columns(x: jax.Array, kernel: jax.Array, moves: Moves) -> jax.Array:
    """Convolve; where there are few channels, several columns of the output at once.

    A kernel that holds itself once for each column, a stride further to the right each
    time, makes as many times the features, which XLA:CPU computes faster, and the same
    output in memory.
    """
    length, width, channels, features = kernel.shape
    _, columns = moves.outputs(x.shape[1:3], (length, width))
    least = -(-ENOUGH_FEATURES // features)
    fits = [n for n in range(least, MANY_COLUMNS + 1) if columns % n == 0]
    if max(channels, features) > FEW_FEATURES or not fits:
        return _plain(x, kernel, moves)
    at_once, (down, right) = fits[0], moves.strides
    spread = (at_once - 1) * right
    copies = [
        jnp.pad(kernel, ((0, 0), (i, spread - i), (0, 0), (0, 0)))
        for i in range(0, spread + 1, right)
    ]
    whole = jnp.stack(copies, 3).reshape(length, width + spread, channels, -1)
    y = _plain(x, whole, Moves((down, right * at_once), moves.padding))
    return y.reshape(*y.shape[:2], columns, features)


def _shifted(
    x: jax.Array, kernel: Sequence[int], moves: Moves, *, stored: bool = False
) -> list[jax.Array]:
    """Return what each element of a kernel meets, KH * KW times (N, HO, WO, C).

    Args:
      x: Images (N, H, W, C).
      kernel: Rows and columns of the kernel.
      moves: How it moves.
      stored: Whether the padded images are stored, not computed for each slice again.
    """
    (top, _), (left, _) = moves.padding
    (down, right), outputs = moves.strides, moves.outputs(x.shape[1:3], kernel)
    height, width = (
        (n - 1) * s + k for n, s, k in zip(outputs, moves.strides, kernel, strict=True)
    )
    x = _pad(x, (top, height - x.shape[1] - top), (left, width - x.shape[2] - left))
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


def _pad(x: jax.Array, rows: tuple[int, int], columns: tuple[int, int]) -> jax.Array:
    zero = jnp.zeros((), x.dtype)
    return lax.pad(x, zero, ((0, 0, 0), (*rows, 0), (*columns, 0), (0, 0, 0)))


def _patches(x: jax.Array, kernel: Sequence[int], moves: Moves) -> jax.Array:
    """Return the pixels under the kernel, (N * HO * WO, KH * KW * C)."""
    patches = jnp.concatenate(_shifted(x, kernel, moves), -1)
    return patches.reshape(-1, patches.shape[-1])


def _depthwise(x: jax.Array, kernel: jax.Array, moves: Moves) -> jax.Array:
    """Convolve each channel by itself: a sum of shifted images, image by image."""
    dtype = wide(x.dtype)
    taps = kernel.reshape(-1, kernel.shape[-1]).astype(dtype)

    def one(image: jax.Array) -> jax.Array:
        parts = _shifted(image[None], kernel.shape[:2], moves)
        products = [a.astype(dtype) * tap for a, tap in zip(parts, taps, strict=True)]
        return reduce(jnp.add, products)[0].astype(x.dtype)

    return lax.map(one, x)


def _depthwise_kernel_grad(
    x: jax.Array, kernel: Sequence[int], moves: Moves, dy: jax.Array
) -> jax.Array:
    dtype = wide(x.dtype)

    def add(total: jax.Array, pair: tuple[jax.Array, jax.Array]) -> tuple[Any, None]:
        image, grad = (a[None].astype(dtype) for a in pair)
        parts = _shifted(image, kernel[:2], moves, stored=True)
        return total + jnp.stack([(a * grad).sum((0, 1, 2)) for a in parts]), None

    start = jnp.zeros((kernel[0] * kernel[1], kernel[3]), dtype)
    return lax.scan(add, start, (x, dy))[0].reshape(kernel)


def _input_grad(
    size: tuple[int, int],
    kernel: jax.Array,
    moves: Moves,
    depthwise: bool,
    dy: jax.Array,
) -> jax.Array:
    """Return the gradient of images of `size`, of each phase of a stride by itself.

    Rows p, p + stride, ... of the images have met the elements (p + padding) % stride,
    + stride, ... of the kernel alone, and the same holds for columns.
    """
    if kernel.shape[0] < moves.strides[0] or kernel.shape[1] < moves.strides[1]:
        # Some phase has met no element: as JAX writes it.
        groups = dy.shape[-1] if depthwise else 1
        shape = (dy.shape[0], *size, kernel.shape[2] * groups)
        like = jax.ShapeDtypeStruct(shape, dy.dtype)
        convolve = partial(_plain, kernel=kernel, moves=moves, groups=groups)
        return jax.linear_transpose(convolve, like)(dy)[0]
    outputs = dy.shape[1:3]
    rows, columns = (
        [_phase(p, stride, pads[0], k, -(-n // stride), n_out) for p in range(stride)]
        for stride, pads, k, n, n_out in zip(
            moves.strides, moves.padding, kernel.shape[:2], size, outputs, strict=True
        )
    )
    function = _depthwise if depthwise else _dense
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
    whole = phases.reshape(num, height * down, width * right, -1)
    return whole[:, : size[0], : size[1]]


def _phase(
    phase: int, stride: int, pad: int, kernel: int, inputs: int, outputs: int
) -> tuple[int, tuple[int, int]]:
    """Return the first element of the kernel that a phase has met, and the padding.

    Args:
      phase: Number of the phase, from 0.
      stride: Stride of the kernel.
      pad: Zeros in front of the image.
      kernel: Elements of the kernel.
      inputs: Pixels of the phase.
      outputs: Pixels of the output.
    """
    first = (phase + pad) % stride
    elements = len(range(first, kernel, stride))
    before = elements - 1 - (phase + pad) // stride
    return first, (before, inputs + elements - 1 - outputs - before)


def _spread(grads: jax.Array, size: Sequence[int], moves: Moves) -> jax.Array:
    """Lay gradients of every stride-th pixel into zeros of the size of the image."""
    holes = [
        (0, inputs - (outputs - 1) * stride - 1, stride - 1)
        for inputs, outputs, stride in zip(
            size, grads.shape[1:3], moves.strides, strict=True
        )
    ]
    zero = jnp.zeros((), grads.dtype)
    return lax.pad(grads, zero, ((0, 0, 0), *holes, (0, 0, 0)))


def _kernel_grad(
    x: jax.Array, kernel: Sequence[int], moves: Moves, dy: jax.Array
) -> jax.Array:
    """Return the gradient of a kernel, summed over a few images at a time."""
    num, pixels = len(x), dy.shape[1] * dy.shape[2]
    if num > 1 and _pays_as_patches(x.dtype, kernel):
        return _from_patches(x, dy, kernel, moves)
    if kernel[3] <= FEW_FEATURES or pixels <= FEW_PIXELS:
        kernel_like = jax.ShapeDtypeStruct(tuple(kernel), x.dtype)
        convolve = partial(_plain, moves=moves)
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
    """Sum the products of bfloat16 gradients and patches, of a few images at a time.

    XLA:CPU has no bfloat16 product whose left side it transposes: `dy` is transposed
    before the loop. XLA would move that into a loop of one pass, so there are two.
    """
    num, (_, rows, columns, features) = len(x), dy.shape
    most = max(1, PATCHES_AT_ONCE // (rows * columns))
    at_once = 1 if num % 2 else math.gcd(most, num // 2)
    turned = _as_bits(dy).reshape(num // at_once, -1, features).swapaxes(1, 2)

    def add(total: jax.Array, pair: tuple[jax.Array, jax.Array]) -> tuple[Any, None]:
        images, grads = pair
        patches = _from_bits(_patches(images, kernel[:2], moves))
        found = lax.dot(_from_bits(grads), patches, preferred_element_type=jnp.float32)
        return total + found, None

    images = _as_bits(x).reshape(num // at_once, at_once, *x.shape[1:])
    start = jnp.zeros((features, math.prod(kernel[:3])), jnp.float32)
    return lax.scan(add, start, (images, turned))[0].T.reshape(kernel)


def _from_rows(
    x: jax.Array, dy: jax.Array, *, kernel: Sequence[int], moves: Moves
) -> jax.Array:
    """Convolve all rows of some images, as one image of one channel, with `dy`.

    (column, channel) is one axis of it, along which a kernel of the outputs' size
    moves with holes of a pixel: it comes to lie on each (column of the kernel, channel)
    once.
    """
    num, height, width, channels = x.shape
    _, rows, columns, features = dy.shape
    (down, right), ((top, _), (left, _)) = moves.strides, moves.padding
    need = (rows - 1) * down + kernel[0]
    # Images below each other, each of a multiple of the stride.
    tall = need if num == 1 else -(-need // down) * down
    wide_ = (columns - 1) * right + kernel[1]
    dtype = wide(x.dtype)
    x = _pad(x.astype(dtype), (top, tall - height - top), (left, wide_ - width - left))
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
