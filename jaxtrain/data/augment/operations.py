"""The 14 operations of RandAugment and related policies, vectorised over images.

Under vmap, all branches of a conditional would be computed for all images. Instead, an
operation consists of an affine map, a lookup table of 256 values and a blend with
another image, with identities for unused components. An operation thus takes one gather
of pixels, one lookup and one blend.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.data.augment import affine, colour

MOVES = ("shear_x", "shear_y", "translate_x", "translate_y", "rotate")
BLENDS = ("brightness", "color", "contrast", "sharpness")
# Operations whose magnitude has a random sign.
SIGNED = (*MOVES, *BLENDS)
NAMES = ("identity", *SIGNED, "posterize", "solarize", "autocontrast", "equalize")


class Tables(NamedTuple):
    """Parameters by operation, level and sign: arrays (14, levels, 2, ...).

    Attributes:
      maps: Affine maps, int32 (..., 6) in fixed point (see `affine`).
      factors: Factors of blends, float32.
      masks: Bit masks of posterize, int32.
      thresholds: Thresholds of solarize, float32.
    """

    maps: np.ndarray
    factors: np.ndarray
    masks: np.ndarray
    thresholds: np.ndarray

    @property
    def num_levels(self) -> int:
        return self.maps.shape[1]


def make_tables(
    magnitudes: Mapping[str, np.ndarray], height: int, width: int
) -> Tables:
    """Return the parameters of all operations for images of one size.

    Args:
      magnitudes: Operation -> magnitude at each level, (levels,): a slope, pixels,
        degrees, the change of a blend factor from 1, bits or a threshold.
      height: Height of the images.
      width: Width of the images.
    """
    # Operation -> (field of `Tables`, function from a magnitude to an entry).
    effects: dict[str, tuple[str, Callable[[float], Any]]] = {
        "shear_x": ("maps", affine.shear_x),
        "shear_y": ("maps", affine.shear_y),
        "translate_x": ("maps", lambda pixels: affine.translate(pixels, 0)),
        "translate_y": ("maps", lambda pixels: affine.translate(0, pixels)),
        "rotate": ("maps", lambda degrees: affine.rotate(degrees, height, width)),
        **dict.fromkeys(BLENDS, ("factors", lambda change: 1 + change)),
        "posterize": ("masks", lambda bits: 256 - 2 ** (8 - int(bits))),
        "solarize": ("thresholds", float),
    }
    shape = (len(NAMES), len(magnitudes["shear_x"]), 2)
    tables = {
        "maps": np.broadcast_to(np.array(affine.IDENTITY), (*shape, 6)).copy(),
        "factors": np.ones(shape, np.float32),
        "masks": np.full(shape, 255, np.int32),
        "thresholds": np.full(shape, 256, np.float32),
    }
    for name, (table, effect) in effects.items():
        for level, magnitude in enumerate(magnitudes.get(name, ())):
            other = -magnitude if name in SIGNED else magnitude
            for negative, signed in enumerate((magnitude, other)):
                place = NAMES.index(name), level, negative
                tables[table][place] = effect(signed)
    return Tables(**{**tables, "maps": affine.fixed(tables["maps"])})


class Drawn(NamedTuple):
    """Indices into `Tables`, drawn for an image: operation, level, sign; int32 ()."""

    operation: jax.Array
    level: jax.Array
    negative: jax.Array

    def of(self, table: np.ndarray) -> jax.Array:
        return jnp.asarray(table)[self.operation, self.level, self.negative]


def draw(key: jax.Array, tables: Tables, level: int | None = None) -> Drawn:
    """Draw an operation, a sign and a level.

    Args:
      key: PRNG key of the image.
      tables: Parameters of the operations.
      level: Level of the operation. None draws a random level.
    """
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
    """Apply the operation that was drawn for an image.

    Args:
      image: Image, uint8 (H, W, C).
      drawn: Drawn operation, level and sign.
      tables: Parameters of the operations.
      smooth: Whether to interpolate bilinearly.
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
    """Return RandAugment's magnitudes (arXiv:1909.13719), as in torchvision."""
    moves = 150 / 331 * width, 150 / 331 * height
    return _levels(levels, 0.3, moves, 30, 0.9, _bits(8, 4, levels))


def wide_levels(levels: int = 31) -> dict[str, np.ndarray]:
    """Return TrivialAugmentWide's magnitudes (arXiv:2103.10158), as in torchvision."""
    return _levels(levels, 0.99, (32, 32), 135, 0.99, _bits(8, 6, levels))


def mix_levels(
    height: int, width: int, severity: int, levels: int = 10
) -> dict[str, np.ndarray]:
    """Return AugMix's magnitudes (arXiv:1912.02781), as in torchvision."""
    moves = width / 3, height / 3
    every = _levels(levels, 0.3, moves, 30, 0.9, _bits(4, 4, levels))
    return {name: magnitudes[:severity] for name, magnitudes in every.items()}


def _levels(
    levels: int,
    slope: float,
    moves: tuple[float, float],
    degrees: float,
    blend: float,
    bits: np.ndarray,
) -> dict[str, np.ndarray]:
    """Return the magnitudes of each operation by level, (levels,).

    Magnitudes increase linearly from 0 to the given maxima. The threshold of solarize
    decreases from 255 to 0. `bits` are the magnitudes of posterize.

    Args:
      levels: Number of levels.
      slope: Maximum slope of shears.
      moves: Maximum translation in x and y, in pixels.
      degrees: Maximum angle of rotations.
      blend: Maximum change of the blend factor from 1.
      bits: Number of bits of posterize at each level, (levels,).
    """
    ends = (slope, slope, *moves, degrees, *len(BLENDS) * [blend])
    largest = dict(zip(SIGNED, ends, strict=True))
    return {
        **{name: np.linspace(0, end, levels) for name, end in largest.items()},
        "posterize": bits,
        "solarize": np.linspace(255, 0, levels),
    }


def _bits(most: int, fewer: int, levels: int) -> np.ndarray:
    # Round half to even, as torch does.
    return most - np.round(np.arange(levels) / ((levels - 1) / fewer))
