"""Pillow's antialiased resizing on the device, by two matrix products."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

# Left, top, right and bottom in pixels, float32 ().
Box = tuple[jax.Array, jax.Array, jax.Array, jax.Array]

# Weights are multiples of 1 / GRAIN, so that their products with pixel values, and sums
# of the products, fit into the 24 bits of a float32. Sums are thus exact in any order,
# and do not depend on the number of devices.
GRAIN = 2.0**15


def _triangle(x: jax.Array) -> jax.Array:
    return jnp.maximum(0, 1 - jnp.abs(x))


def _cubic(x: jax.Array) -> jax.Array:
    """Return Keys' cubic kernel (1981) with a = -1/2, Pillow's bicubic."""
    x = jnp.abs(x)
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return jnp.where(x < 1, near, jnp.where(x < 2, far, 0))


KERNELS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "bilinear": _triangle,
    "bicubic": _cubic,
}


def resize(
    image: jax.Array, box: Box, size: int, method: str, *, within: bool = False
) -> jax.Array:
    """Resize a box of an image, antialiased: columns first, then rows.

    Args:
      image: Image, uint8 (H, W, C).
      box: Box in pixels of the image, not necessarily square.
      size: Height and width of the result.
      method: Name of the kernel: bilinear or bicubic.
      within: Whether to exclude pixels outside the box from interpolation. Pixels that
        are partly inside are included.

    Returns:
      Image, uint8 (size, size, C).
    """
    return resample(image, *_both_weights(image, box, size, method, within))


def resample(image: jax.Array, down: jax.Array, across: jax.Array) -> jax.Array:
    """Resample an image with row and column weights; return uint8 (H, W, C).

    Args:
      image: Image, uint8 (h, w, C).
      down: Row weights, (H, h); see `weights`.
      across: Column weights, (W, w).
    """
    narrow = _rounded("ow,hwc->hoc", across, image)
    return _rounded("oh,hwc->owc", down, narrow)


def resize_linear(
    pixels: jax.Array, box: Box, size: int, *, within: bool = False
) -> jax.Array:
    """Resize a box of a float32 array (H, W, C) like `resize`, without rounding."""
    return resample_linear(
        pixels, *_both_weights(pixels, box, size, "bilinear", within)
    )


def resample_linear(pixels: jax.Array, down: jax.Array, across: jax.Array) -> jax.Array:
    """Resample a float32 array (h, w, C) like `resample`, without rounding."""
    return _product("oh,hwc->owc", down, _product("ow,hwc->hoc", across, pixels))


def weights(
    start: jax.Array,
    stop: jax.Array,
    stored: int,
    size: int,
    method: str,
    *,
    within: bool = False,
) -> jax.Array:
    """Return the matrix of resampling weights, (size, stored).

    As in Pillow's `precompute_coeffs`, the kernel has the width of output pixels when
    shrinking, and of input pixels when enlarging. Each row of the matrix sums to 1.

    Args:
      start: Start of the box along the axis, in input pixels.
      stop: End of the box along the axis, in input pixels.
      stored: Size of the input along the axis, in pixels.
      size: Size of the output along the axis, in pixels.
      method: Name of the kernel: bilinear or bicubic.
      within: Whether to exclude pixels outside the box; see `resize`.
    """
    scale = (stop - start) / size
    centres = start + (jnp.arange(size, dtype=jnp.float32) + 0.5) * scale
    pixels = jnp.arange(stored, dtype=jnp.float32) + 0.5
    distance = (pixels - centres[:, None]) / jnp.maximum(scale, 1)
    raw = KERNELS[method](distance)
    if within:
        inside = (pixels > jnp.floor(start)) & (pixels < jnp.ceil(stop))
        raw = jnp.where(inside, raw, 0)
    grains = jnp.round(raw / jnp.sum(raw, axis=1, keepdims=True) * GRAIN)
    # The rounding error is added to the largest weight, so that the sum is exactly 1.
    missing = GRAIN - jnp.sum(grains, axis=1, keepdims=True)
    largest = jnp.arange(stored) == jnp.argmax(grains, axis=1)[:, None]
    return (grains + jnp.where(largest, missing, 0)) / GRAIN


def resize_nearest(pixels: jax.Array, box: Box, size: int) -> jax.Array:
    """Resize a box of an array (H, W, ...) with nearest neighbours."""
    left, top, right, bottom = box
    down = _nearest(top, bottom, pixels.shape[0], size)
    across = _nearest(left, right, pixels.shape[1], size)
    return pixels[down][:, across]


def _nearest(start: jax.Array, stop: jax.Array, stored: int, size: int) -> jax.Array:
    # Multiply before dividing, so that centres at integers are exact.
    middles = (jnp.arange(size, dtype=jnp.float32) + 0.5) * (stop - start) / size
    return jnp.clip(jnp.floor(start + middles).astype(jnp.int32), 0, stored - 1)


def _both_weights(
    image: jax.Array, box: Box, size: int, method: str, within: bool
) -> tuple[jax.Array, jax.Array]:
    left, top, right, bottom = box
    height, width, _ = image.shape
    across = weights(left, right, width, size, method, within=within)
    return weights(top, bottom, height, size, method, within=within), across


def _product(axes: str, matrix: jax.Array, image: jax.Array) -> jax.Array:
    return jnp.einsum(axes, matrix, image, precision=jax.lax.Precision.HIGHEST)


def _rounded(axes: str, matrix: jax.Array, image: jax.Array) -> jax.Array:
    """Resample along one axis, and round to uint8, as Pillow does after each axis."""
    exact = _product(axes, matrix, image.astype(jnp.float32))
    return jnp.clip(jnp.floor(exact + 0.5), 0, 255).astype(jnp.uint8)
