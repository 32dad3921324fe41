"""What torchvision does with images of Pillow, written down from its definitions."""

import math
from collections.abc import Callable

from PIL import Image, ImageEnhance, ImageOps


def map_by_torchvision(
    centre: tuple[float, float],
    angle: float = 0.0,
    translate: tuple[float, float] = (0.0, 0.0),
    shear: tuple[float, float] = (0.0, 0.0),
) -> tuple[float, float, float, float, float, float]:
    """Return the inverse of translate x centre x rotate-and-shear x -centre."""
    turn, (sx, sy) = math.radians(angle), map(math.radians, shear)
    a = math.cos(turn - sy) / math.cos(sy)
    b = -math.cos(turn - sy) * math.tan(sx) / math.cos(sy) - math.sin(turn)
    c = math.sin(turn - sy) / math.cos(sy)
    d = -math.sin(turn - sy) * math.tan(sx) / math.cos(sy) + math.cos(turn)
    (cx, cy), (tx, ty) = centre, translate
    x = d * (-cx - tx) - b * (-cy - ty) + cx
    y = -c * (-cx - tx) + a * (-cy - ty) + cy
    return d, -b, x, -c, a, y


def _shear(image: Image.Image, x: float, y: float) -> Image.Image:
    degrees = (math.degrees(math.atan(x)), math.degrees(math.atan(y)))
    coefficients = map_by_torchvision((0.0, 0.0), shear=degrees)
    return image.transform(image.size, Image.Transform.AFFINE, coefficients)


def _translate(image: Image.Image, x: float, y: float) -> Image.Image:
    moved = (float(int(x)), float(int(y)))
    centre = (image.width / 2, image.height / 2)
    coefficients = map_by_torchvision(centre, translate=moved)
    return image.transform(image.size, Image.Transform.AFFINE, coefficients)


# Of RandAugment and its kin: (image, strength with its sign) -> image.
OPERATIONS: dict[str, Callable[[Image.Image, float], Image.Image]] = {
    "identity": lambda image, strength: image,
    "shear_x": lambda image, slope: _shear(image, slope, 0.0),
    "shear_y": lambda image, slope: _shear(image, 0.0, slope),
    "translate_x": lambda image, pixels: _translate(image, pixels, 0.0),
    "translate_y": lambda image, pixels: _translate(image, 0.0, pixels),
    "rotate": lambda image, degrees: image.rotate(degrees),
    "brightness": lambda image, x: ImageEnhance.Brightness(image).enhance(1 + x),
    "color": lambda image, x: ImageEnhance.Color(image).enhance(1 + x),
    "contrast": lambda image, x: ImageEnhance.Contrast(image).enhance(1 + x),
    "sharpness": lambda image, x: ImageEnhance.Sharpness(image).enhance(1 + x),
    # Newer versions of its own refuse 0 bits.
    "posterize": lambda image, bits: image.point(
        lambda i: i & (256 - 2 ** (8 - int(bits)))
    ),
    "solarize": lambda image, threshold: ImageOps.solarize(image, threshold),  # pyright: ignore
    "autocontrast": lambda image, strength: ImageOps.autocontrast(image),
    "equalize": lambda image, strength: ImageOps.equalize(image),
}
