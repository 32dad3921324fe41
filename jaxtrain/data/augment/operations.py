"""The 14 operations of RandAugment and its kin, of which each image draws its own.

On a device every branch of a choice is computed for all images. So there are none: of
whatever operation an image has drawn, its geometry is a map, its colours are a table of
256 values or a blend with another image, and what it has not drawn does nothing. A pass
over an image is one gather of pixels, one look-up and one blend.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.data.augment import affine, colour

MOVES = ("shear_x", "shear_y", "translate_x", "translate_y", "rotate")
BLENDS = ("brightness", "color", "contrast", "sharpness")
# Those that go either way: with the sign or against it.
SIGNED = (*MOVES, *BLENDS)
NAMES = ("identity", *SIGNED, "posterize", "solarize", "autocontrast", "equalize")


class Tables(NamedTuple):
    """What the operations are at each level, with either sign: (14, levels, 2, ...).

    Attributes:
      maps: int32 (..., 6) in fixed point (see `affine`).
      factors: of blends, float32.
      masks: of posterize, int32.
      thresholds: of solarize, float32.
    """

    maps: np.ndarray
    factors: np.ndarray
    masks: np.ndarray
    thresholds: np.ndarray

    @property
    def num_levels(self) -> int:
        return self.maps.shape[1]


def make_tables(strengths: Mapping[str, np.ndarray], height: int, width: int) -> Tables:
    """Return the tables for images of one size.

    Args:
      strengths: Strengths of each operation that has any, at each level: slopes,
        pixels, degrees, what is added to a factor of 1, bits, thresholds.
      height: Height of the images.
      width: Width of the images.
    """
    make_map: dict[str, Callable[[float], affine.Map]] = {
        "shear_x": affine.shear_x,
        "shear_y": affine.shear_y,
        "translate_x": lambda pixels: affine.translate(pixels, 0),
        "translate_y": lambda pixels: affine.translate(0, pixels),
        "rotate": lambda degrees: affine.rotate(degrees, height, width),
    }
    shape = (len(NAMES), len(strengths["shear_x"]), 2)
    maps = np.broadcast_to(np.array(affine.IDENTITY), (*shape, 6)).copy()
    factors, thresholds = np.ones(shape), np.full(shape, 256.0)
    masks = np.full(shape, 255)
    for operation, name in enumerate(NAMES):
        for level, strength in enumerate(strengths.get(name, ())):
            for negative in (0, 1):
                place = operation, level, negative
                signed = -strength if negative and name in SIGNED else strength
                if name in make_map:
                    maps[place] = make_map[name](signed)
                elif name in BLENDS:
                    factors[place] = 1 + signed
                elif name == "posterize":
                    masks[place] = 256 - 2 ** (8 - int(strength))
                elif name == "solarize":
                    thresholds[place] = strength
    return Tables(
        affine.fixed(maps),
        factors.astype(np.float32),
        masks.astype(np.int32),
        thresholds.astype(np.float32),
    )


class Drawn(NamedTuple):
    """What one image has drawn: an operation, its level and its sign, int32 () each."""

    operation: jax.Array
    level: jax.Array
    negative: jax.Array

    def of(self, table: np.ndarray) -> jax.Array:
        return jnp.asarray(table)[self.operation, self.level, self.negative]


def draw(key: jax.Array, tables: Tables, level: int | None = None) -> Drawn:
    """Draw an operation and a sign; and a level, unless it is given."""
    keys = jax.random.split(key, 3)
    ends = (len(NAMES), 2, tables.num_levels)
    operation, negative, drawn = (
        jax.random.randint(k, (), 0, end, jnp.int32)
        for k, end in zip(keys, ends, strict=True)
    )
    return Drawn(operation, drawn if level is None else jnp.int32(level), negative)


def apply(
    image: jax.Array, drawn: Drawn, tables: Tables, *, smooth: bool = False
) -> jax.Array:
    """Apply what an image has drawn.

    Args:
      image: Image, uint8 (H, W, C).
      drawn: Operation that was drawn.
      tables: Parameters of the operations.
      smooth: Whether pixels that move are interpolated.
    """
    gather = affine.bilinear if smooth else affine.nearest
    image = gather(image, drawn.of(tables.maps))
    factor = drawn.of(tables.factors)

    def is_(name: str) -> jax.Array:
        return drawn.operation == NAMES.index(name)

    values = jnp.asarray(colour.VALUES)
    histogram = colour.counts(image)
    dark = jnp.where(is_("contrast"), colour.mean_grey(image), 0)
    blended = is_("brightness") | is_("contrast")
    thresholds = drawn.of(tables.thresholds)
    table = jnp.where(values < thresholds, values, 255 - values)
    table &= drawn.of(tables.masks)
    table = jnp.where(blended, colour.blend(dark, values, factor), table)
    table = jnp.where(is_("autocontrast"), colour.autocontrast(histogram), table)
    table = jnp.where(is_("equalize"), colour.equalize(histogram), table)
    image = colour.look_up(image, table)
    other = jnp.where(is_("color"), colour.to_grey(image), colour.smooth(image))
    factor = jnp.where(is_("color") | is_("sharpness"), factor, 1)
    return colour.blend(other, image, factor)


def rand_levels(height: int, width: int, levels: int = 31) -> dict[str, np.ndarray]:
    """Return RandAugment's strengths (arXiv:1909.13719), as torchvision has them."""
    return {
        "shear_x": np.linspace(0, 0.3, levels),
        "shear_y": np.linspace(0, 0.3, levels),
        "translate_x": np.linspace(0, 150 / 331 * width, levels),
        "translate_y": np.linspace(0, 150 / 331 * height, levels),
        "rotate": np.linspace(0, 30, levels),
        **{name: np.linspace(0, 0.9, levels) for name in BLENDS},
        "posterize": _bits(8, 4, levels),
        "solarize": np.linspace(255, 0, levels),
    }


def wide_levels(levels: int = 31) -> dict[str, np.ndarray]:
    """Return TrivialAugment's wide strengths (arXiv:2103.10158), as torchvision's."""
    return {
        "shear_x": np.linspace(0, 0.99, levels),
        "shear_y": np.linspace(0, 0.99, levels),
        "translate_x": np.linspace(0, 32, levels),
        "translate_y": np.linspace(0, 32, levels),
        "rotate": np.linspace(0, 135, levels),
        **{name: np.linspace(0, 0.99, levels) for name in BLENDS},
        "posterize": _bits(8, 6, levels),
        "solarize": np.linspace(255, 0, levels),
    }


def mix_levels(
    height: int, width: int, severity: int, levels: int = 10
) -> dict[str, np.ndarray]:
    """Return AugMix's strengths (arXiv:1912.02781) up to a severity, as torchvision."""
    every = {
        **rand_levels(height, width, levels),
        "translate_x": np.linspace(0, width / 3, levels),
        "translate_y": np.linspace(0, height / 3, levels),
        "posterize": _bits(4, 4, levels),
    }
    return {name: strengths[:severity] for name, strengths in every.items()}


def _bits(most: int, fewer: int, levels: int) -> np.ndarray:
    """Return the bits that posterize keeps: up to `fewer` fewer than `most`."""
    # Half goes to even, as in torch.
    return most - np.round(np.arange(levels) / ((levels - 1) / fewer))
