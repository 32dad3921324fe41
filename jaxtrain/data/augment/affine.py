"""Affine transforms of images by gathers, in Pillow's fixed-point arithmetic.

An affine map (a, b, c, d, e, f) maps output (x, y) to input pixels, as in Pillow's
`Image.transform`: x' = a x + b y + c and y' = d x + e y + f. A fixed-point map has six
int32 coefficients in units of 1/65536 pixels.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

ONE = 65536
IDENTITY = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)
Map = tuple[float, float, float, float, float, float]


def shear_x(slope: float) -> Map:
    return 1.0, slope, 0.0, 0.0, 1.0, 0.0


def shear_y(slope: float) -> Map:
    return 1.0, 0.0, 0.0, slope, 1.0, 0.0


def translate(right: float, down: float) -> Map:
    """Return the map of a translation, rounded towards 0 to whole pixels."""
    return 1.0, 0.0, -float(int(right)), 0.0, 1.0, -float(int(down))


def rotate(degrees: float, height: int, width: int) -> Map:
    """Return the map of a counter-clockwise rotation about the centre."""
    angle = -math.radians(degrees)
    # Pillow's `rotate` also rounds to 15 decimals, so that right angles are exact.
    cos, sin = round(math.cos(angle), 15), round(math.sin(angle), 15)
    x, y = width / 2, height / 2
    return cos, sin, x - cos * x - sin * y, -sin, cos, y + sin * x - cos * y


def fixed(maps: np.ndarray) -> np.ndarray:
    """Convert affine maps (..., 6) to fixed-point maps, int32 (..., 6).

    Fixed-point maps take output pixel indices instead of coordinates: they include the
    offset of 1/2 from an index to the centre of the pixel.
    """
    a, b, c, d, e, f = np.moveaxis(np.asarray(maps, np.float64), -1, 0)
    middles = (a, b, c + (a + b) / 2, d, e, f + (d + e) / 2)
    return np.floor(np.stack(middles, -1) * ONE + 0.5).astype(np.int32)


def random_rotation(key: jax.Array, degrees: float, height: int, width: int):
    """Draw the fixed-point map of a rotation by an angle in -degrees..degrees."""
    drawn = jax.random.uniform(key, (), jnp.float32, -degrees, degrees)
    cos, sin = jnp.cos(jnp.deg2rad(drawn)), -jnp.sin(jnp.deg2rad(drawn))
    # The centre of the image, in pixel indices.
    x, y = (width - 1) / 2, (height - 1) / 2
    c, f = x - cos * x - sin * y + 0.5, y + sin * x - cos * y + 0.5
    floats = jnp.stack([cos, sin, c, -sin, cos, f])
    return jnp.floor(floats * ONE + 0.5).astype(jnp.int32)


def nearest(image: jax.Array, coefficients: jax.Array) -> jax.Array:
    """Transform an image (H, W, C) with nearest-neighbour sampling and zero padding."""
    x, y = _input_coordinates(image, coefficients)
    return _take(image, x >> 16, y >> 16)


def bilinear(image: jax.Array, coefficients: jax.Array) -> jax.Array:
    """Transform an image (H, W, C) with bilinear interpolation and zero padding."""
    x, y = _input_coordinates(image, coefficients)
    height, width, _ = image.shape
    inside = (x >= 0) & (x < width * ONE) & (y >= 0) & (y < height * ONE)
    x, y = x - ONE // 2, y - ONE // 2
    left, top = x >> 16, y >> 16
    along, down = ((v & (ONE - 1)).astype(jnp.float32)[..., None] / ONE for v in (x, y))

    def corner(rows: jax.Array, columns: jax.Array) -> jax.Array:
        rows, columns = jnp.clip(rows, 0, height - 1), jnp.clip(columns, 0, width - 1)
        return _take(image, columns, rows).astype(jnp.float32)

    upper = corner(top, left) * (1 - along) + corner(top, left + 1) * along
    lower = corner(top + 1, left) * (1 - along) + corner(top + 1, left + 1) * along
    mean = upper * (1 - down) + lower * down
    return jnp.where(inside[..., None], mean, 0).astype(image.dtype)


def move_points(points: jax.Array, coefficients: jax.Array) -> jax.Array:
    """Map points of an image to the transformed image.

    Args:
      points: (x, y) in pixels from the upper left corner, float32 (..., 2).
      coefficients: Fixed-point map from output to input pixels; its inverse is applied.
    """
    a, b, c, d, e, f = coefficients.astype(jnp.float32) / ONE
    x = points[..., 0] - (c - (a + b) / 2)
    y = points[..., 1] - (f - (d + e) / 2)
    return jnp.stack([e * x - b * y, a * y - d * x], -1) / (a * e - b * d)


def _input_coordinates(
    image: jax.Array, coefficients: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Map output pixels to input x and y, int32 (H, W), in units of 1/65536 pixels."""
    a, b, c, d, e, f = coefficients
    rows = jnp.arange(image.shape[0], dtype=jnp.int32)[:, None]
    columns = jnp.arange(image.shape[1], dtype=jnp.int32)
    return a * columns + b * rows + c, d * columns + e * rows + f


def _take(image: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    height, width, channels = image.shape
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    index = jnp.where(inside, y * width + x, 0)
    taken = image.reshape(height * width, channels)[index]
    return jnp.where(inside[..., None], taken, 0).astype(image.dtype)
