"""Digital corruptions."""

import functools
import io

import numpy as np
from PIL import Image
from scipy import ndimage

from jaxtrain.plugins.robustness.corruptions.draws import Draws, each_image


def contrast(images: np.ndarray, part: float, draws: Draws) -> np.ndarray:
    """Reduce contrast: move each channel towards its mean."""
    means = images.mean((1, 2), keepdims=True)
    return (images - means) * part + means


@each_image
def elastic_transform(
    image: np.ndarray, level: tuple[float, ...], draw: np.random.Generator
) -> np.ndarray:
    """Warp an image by a random affine map, then by a smooth random displacement.

    Args:
      image: Image in 0..1, (H, W, C).
      level: Largest displacement, sigma of its smoothing, and jitter of the points that
        define the affine map, as fractions of the shorter side.
      draw: Generator of random numbers.
    """
    reach, smooth, jitter = (min(image.shape[:2]) * part for part in level)
    return _displace(_warp(image, jitter, draw), reach, smooth, draw)


def _warp(image: np.ndarray, jitter: float, draw: np.random.Generator) -> np.ndarray:
    """Affine warp of an image (H, W, C) that moves three points randomly."""
    height, width, _ = image.shape
    # Points are (x, y), but the centre is (y, x), as in the authors' code. For square
    # images the two are equal.
    middle = np.array([height // 2, width // 2], np.float64)
    side = min(height, width) // 3
    points = middle + side * np.array([[1, 1], [1, -1], [-1, -1]])
    moved = points + draw.uniform(-jitter, jitter, points.shape)
    ones = np.ones((3, 1))
    # `back` maps positions in the new image to positions in the old image.
    back = np.linalg.solve(np.hstack([moved, ones]), points).T
    y, x = np.indices((height, width), np.float64)
    from_x, from_y = (row[0] * x + row[1] * y + row[2] for row in back)
    return _sample(image, from_y, from_x, "mirror")


def _displace(
    image: np.ndarray, reach: float, smooth: float, draw: np.random.Generator
) -> np.ndarray:
    """Displace the pixels of an image (H, W, C) by a smooth random field."""
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
    """Matrix of a 1-D Gaussian filter with mirrored ends, (size, size).

    The cost of the matrix product does not depend on the width of the Gaussian.
    """
    if sigma == 0:
        return np.eye(size)
    return ndimage.gaussian_filter1d(
        np.eye(size), sigma, axis=0, mode="reflect", truncate=3
    )


def _sample(image: np.ndarray, y: np.ndarray, x: np.ndarray, mode: str) -> np.ndarray:
    """Sample an image (H, W, C) bilinearly."""
    channels = np.moveaxis(image, -1, 0)
    sampled = [
        ndimage.map_coordinates(channel, (y, x), order=1, mode=mode)
        for channel in channels
    ]
    return np.stack(sampled, axis=-1)


@each_image
def pixelate(image: np.ndarray, part: float, _: np.random.Generator) -> np.ndarray:
    """Pixelate: downscale and upscale an image with a box filter."""
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
    """Convert (H, W, C) in 0..1 with 1 or 3 channels to an 8-bit Pillow image."""
    pixels = np.rint(255 * image).astype(np.uint8)
    return Image.fromarray(pixels[..., 0] if image.shape[-1] == 1 else pixels)


def _pixels(picture: Image.Image) -> np.ndarray:
    return np.atleast_3d(np.asarray(picture)) / 255
