"""Convolutions with fast forward and backward passes on CPUs.

XLA:CPU has fast implementations of matrix products and plain convolutions, but not of
the gradients of convolutions: the kernel gradient is a convolution with the batch axis
as channels, and the input gradient of a strided convolution is a convolution with
dilated inputs. This package computes both gradients with fast operations;
`benchmarks/convolutions.py` measures the speed-up.

Shapes: images (N, H, W, C), kernels (KH, KW, C / groups, O), outputs (N, HO, WO, O).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
from flax import nnx
from jax import lax
from jax.sharding import Mesh, PartitionSpec as P

from jaxtrain.parallel.mesh import BATCH_AXES
from jaxtrain.plugins.cpu_convolutions.gradients import (
    depthwise_kernel_grad,
    grad_of_kernel,
    input_grad,
    spread,
)
from jaxtrain.plugins.cpu_convolutions.products import (
    Moves,
    convolve_dense,
    convolve_depthwise,
    is_product,
    product,
    sum_of_products,
)


def use_cpu_convolutions(model: nnx.Module, mesh: Mesh) -> None:
    """Make a model's convolution layers call this module's `conv_general_dilated`.

    Args:
      model: Model to change.
      mesh: Mesh of CPU devices, with data parallelism only.
    """
    for _, layer in nnx.iter_modules(model):
        # Layers with a custom convolution are unchanged.
        convolves = getattr(layer, "conv_general_dilated", None)
        if convolves is lax.conv_general_dilated:
            alone = mesh.size == 1 or getattr(layer, "mesh", None) is not None
            ours = conv_general_dilated if alone else partial(_on_each, mesh)
            layer.conv_general_dilated = ours  # pyright: ignore


def _on_each(
    mesh: Mesh, x: jax.Array, kernel: jax.Array, *args: Any, **options: Any
) -> jax.Array:
    """Convolve the batch shard of each device, with replicated kernels.

    Without `shard_map`, XLA would all-gather the images, because gradients are computed
    by a scan over the batch.
    """
    batch = P(BATCH_AXES)
    return jax.shard_map(
        lambda x, kernel: conv_general_dilated(x, kernel, *args, **options),
        mesh=mesh,
        in_specs=(batch, P()),
        out_specs=batch,
        # `check_vma` would reject the scans over images, because the initial zeros are
        # equal on all devices, but the accumulated sums differ.
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
    """Convolve as `jax.lax.conv_general_dilated`, but faster on CPUs.

    Outputs and gradients equal the results of `lax` except for the order of summation.
    Dilated convolutions, grouped convolutions that are not depthwise, inputs that are
    not of rank 4, and calls with `options` such as `precision` fall back to `lax`.
    Forward mode (`jax.jvp`) is unsupported.
    """
    dilated = {*(lhs_dilation or ()), *(rhs_dilation or ())} - {1}
    grouped = feature_group_count > 1
    depthwise = feature_group_count == x.shape[-1] == kernel.shape[-1]
    has_options = any(value is not None for value in options.values())
    if x.ndim != 4 or dilated or has_options or (grouped and not depthwise):
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
        return convolve_depthwise(x, kernel, moves)
    if is_product(kernel.shape, moves):
        rows, columns = moves.strides
        x = x[:, ::rows, ::columns]
        y = product(x.reshape(-1, x.shape[-1]), kernel[0, 0])
        return y.reshape(*x.shape[:3], -1)
    return convolve_dense(x, kernel, moves)


def _forward(
    x: jax.Array, kernel: jax.Array, moves: Moves, depthwise: bool
) -> tuple[jax.Array, Any]:
    return _convolve(x, kernel, moves, depthwise), (x, kernel)


def _backward(
    moves: Moves, depthwise: bool, residuals: Any, dy: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x, kernel = residuals
    if is_product(kernel.shape, moves) and not depthwise:
        rows, columns = moves.strides
        grads = dy.reshape(-1, dy.shape[-1])
        x_grad = product(grads, kernel[0, 0].T).reshape(*dy.shape[:3], -1)
        x_grad = spread(x_grad, x.shape[1:3], moves)
        used = x[:, ::rows, ::columns].reshape(-1, x.shape[-1])
        kernel_grad = sum_of_products(used, grads)[None, None]
    else:
        x_grad = input_grad(x.shape[1:3], kernel, moves, depthwise, dy)
        if depthwise:
            kernel_grad = depthwise_kernel_grad(x, kernel.shape, moves, dy)
        else:
            kernel_grad = grad_of_kernel(x, kernel.shape, moves, dy)
    return x_grad, kernel_grad.astype(kernel.dtype)


_convolve.defvjp(_forward, _backward)
