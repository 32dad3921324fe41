"""Corruptions by what cameras and files do."""

import functools
import io

import numpy as np
from PIL import Image
from scipy import ndimage

from jaxtrain.plugins.robustness.corruptions.draws import Draws, each_image


def contrast(images: np.ndarray, part: float, draws: Draws) -> np.ndarray:
    """Move each channel towards its mean."""
    means = images.mean((1, 2), keepdims=True)
    return (images - means) * part + means


@each_image
def elastic_transform(
    image: np.ndarray, level: tuple[float, ...], draw: np.random.Generator
) -> np.ndarray:
    """Move three points, and the image with them; then each pixel, smoothly.

    Args:
      image: Image of any size.
      level: How far pixels move, how smoothly, and how far the points do, as parts of
        the shorter side.
      draw: Generator of its random numbers.
    """
    reach, smooth, jitter = (min(image.shape[:2]) * part for part in level)
    return _displace(_warp(image, jitter, draw), reach, smooth, draw)


def _warp(image: np.ndarray, jitter: float, draw: np.random.Generator) -> np.ndarray:
    """Move an image (H, W, C) as three points of it are moved."""
    height, width, _ = image.shape
    # Places (x, y), though the authors take the middle as (rows, columns): squares.
    middle = np.array([height // 2, width // 2], np.float64)
    side = min(height, width) // 3
    points = middle + side * np.array([[1, 1], [1, -1], [-1, -1]])
    moved = points + draw.uniform(-jitter, jitter, points.shape)
    ones = np.ones((3, 1))
    # The new image shows at a place what the old one has where `back` leads.
    back = np.linalg.solve(np.hstack([moved, ones]), points).T
    y, x = np.indices((height, width), np.float64)
    from_x, from_y = (row[0] * x + row[1] * y + row[2] for row in back)
    return _sample(image, from_y, from_x, "mirror")


def _displace(
    image: np.ndarray, reach: float, smooth: float, draw: np.random.Generator
) -> np.ndarray:
    """Move each pixel of an image (H, W, C) by a smooth random field."""
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
    """Return the matrix that smooths a line, mirrored at its ends, by a Gaussian.

    A product of matrices costs the same however wide the Gaussian is.
    """
    if sigma == 0:
        return np.eye(size)
    return ndimage.gaussian_filter1d(
        np.eye(size), sigma, axis=0, mode="reflect", truncate=3
    )


def _sample(image: np.ndarray, y: np.ndarray, x: np.ndarray, mode: str) -> np.ndarray:
    """Return the values of an image (H, W, C) between its pixels, bilinear."""
    channels = np.moveaxis(image, -1, 0)
    sampled = [
        ndimage.map_coordinates(channel, (y, x), order=1, mode=mode)
        for channel in channels
    ]
    return np.stack(sampled, axis=-1)


@each_image
def pixelate(image: np.ndarray, part: float, _: np.random.Generator) -> np.ndarray:
    """Make an image smaller, and as large as before, by boxes."""
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
    """Return an image (H, W, C) in 0..1 of 1 or 3 channels as an 8-bit picture."""
    pixels = np.rint(255 * image).astype(np.uint8)
    return Image.fromarray(pixels[..., 0] if image.shape[-1] == 1 else pixels)


def _pixels(picture: Image.Image) -> np.ndarray:
    return np.atleast_3d(np.asarray(picture)) / 255
