"""Digital corruptions: contrast, elastic transform, pixelation and JPEG."""

import functools
import io

import numpy as np
from PIL import Image
from scipy import ndimage

from jaxtrain.plugins.robustness.corruptions.draws import Draws, each_image


def contrast(images: np.ndarray, part: float, draws: Draws) -> np.ndarray:
    """Multiply the deviation of pixels from their channel mean by `part`."""
    means = images.mean((1, 2), keepdims=True)
    return (images - means) * part + means


@each_image
def elastic_transform(
    image: np.ndarray, level: tuple[float, ...], draw: np.random.Generator
) -> np.ndarray:
    """Warp an image by a random affine map, then by a smooth random displacement.

    Args:
      image: Image in 0..1, (H, W, C).
      level: As fractions of the shorter side: maximum displacement, sigma of the
        displacement's smoothing, and jitter of the points that define the affine map.
      draw: Generator of random numbers.
    """
    reach, smooth, jitter = (min(image.shape[:2]) * part for part in level)
    return _displace(_warp(image, jitter, draw), reach, smooth, draw)


def _warp(image: np.ndarray, jitter: float, draw: np.random.Generator) -> np.ndarray:
    """Warp an image (H, W, C) by the affine map that jitters three points."""
    height, width, _ = image.shape
    # Points are (x, y), but the centre is (y, x), as in the authors' code; in a square
    # image this makes no difference.
    middle = np.array([height // 2, width // 2], np.float64)
    side = min(height, width) // 3
    points = middle + side * np.array([[1, 1], [1, -1], [-1, -1]])
    moved = points + draw.uniform(-jitter, jitter, points.shape)
    ones = np.ones((3, 1))
    # `back` maps output positions to input positions.
    back = np.linalg.solve(np.hstack([moved, ones]), points).T
    y, x = np.indices((height, width), np.float64)
    from_x, from_y = (row[0] * x + row[1] * y + row[2] for row in back)
    return _sample(image, from_y, from_x, "mirror")


def _displace(
    image: np.ndarray, reach: float, smooth: float, draw: np.random.Generator
) -> np.ndarray:
    """Displace the pixels of an image (H, W, C) by a smoothed random field."""
    height, width, _ = image.shape
    rows, columns = _smoother(height, smooth), _smoother(width, smooth)
    right, down = (
        reach * (rows @ draw.uniform(-1, 1, (height, width)) @ columns.T)
        for _ in range(2)
    )
    y, x = np.indices((height, width), np.float64)
    return _sample(image, y + down, x + right, "reflect")


@functools.lru_cache(maxsize=64)
def _smoother(size: int, sigma: float) -> np.ndarray:
    """Matrix of a 1-D Gaussian filter with reflected borders, (size, size).

    Unlike a convolution, the matrix product costs the same for any `sigma`.
    """
    if sigma == 0:
        return np.eye(size)
    return ndimage.gaussian_filter1d(
        np.eye(size), sigma, axis=0, mode="reflect", truncate=3
    )


def _sample(image: np.ndarray, y: np.ndarray, x: np.ndarray, mode: str) -> np.ndarray:
    """Sample an image (H, W, C) bilinearly at positions (y, x)."""
    channels = np.moveaxis(image, -1, 0)
    sampled = [
        ndimage.map_coordinates(channel, (y, x), order=1, mode=mode)
        for channel in channels
    ]
    return np.stack(sampled, axis=-1)


@each_image
def pixelate(image: np.ndarray, part: float, _: np.random.Generator) -> np.ndarray:
    """Downscale an image by the factor `part`, then upscale it, with a box filter."""
    height, width, _channels = image.shape
    small = max(1, int(width * part)), max(1, int(height * part))
    box = Image.Resampling.BOX
    return _pixels(_picture(image).resize(small, box).resize((width, height), box))


@each_image
def jpeg_compression(
    image: np.ndarray, quality: int, _: np.random.Generator
) -> np.ndarray:
    stream = io.BytesIO()
    _picture(image).save(stream, "JPEG", quality=quality)
    return _pixels(Image.open(stream))


def _picture(image: np.ndarray) -> Image.Image:
    """Convert an image in 0..1, (H, W, 1) or (H, W, 3), to an 8-bit Pillow image."""
    pixels = np.rint(255 * image).astype(np.uint8)
    return Image.fromarray(pixels[..., 0] if image.shape[-1] == 1 else pixels)


def _pixels(picture: Image.Image) -> np.ndarray:
    return np.atleast_3d(np.asarray(picture)) / 255
