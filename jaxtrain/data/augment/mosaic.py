"""Mosaic of four images around a point (Bochkovskiy et al. 2020, arXiv:2004.10934).

As in ultralytics and YOLOX, the point where the images meet is uniform in the middle
half of a canvas of twice the height and width. The canvas is scaled about its centre,
then centre-cropped to the size of an image.

The batch is divided into groups of four consecutive examples, and a mosaic combines the
images of a group. With repeated examples, a group has one copy each of four consecutive
examples. As in `mix`, the images of a group are on one device, and groups do not depend
on the number of devices. Each example has a separate mosaic, from the example's PRNG
key.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.config.augment import MOSAIC_IMAGES, AugmentConfig
from jaxtrain.data.augment.geometry import Geometry
from jaxtrain.data.augment.resize import resample, resample_linear, weights
from jaxtrain.data.target_changes import Follow, Mosaic

# Constant folded into the PRNG keys of mosaics (see `AUGMENTATIONS`).
NUMBER = 13
# Range of the scale factor of the images.
MOSAIC_SCALE = 0.5, 1.5
# Position of each of the four images relative to the point where they meet: (right,
# below), 0 or 1. The first is the example's image.
PLACES = ((0, 0), (1, 0), (0, 1), (1, 1))


@dataclass(frozen=True)
class Tile(Geometry):
    """One image of a mosaic: scaled, translated and cropped.

    Attributes:
      corner: (x, y) of the image's upper left corner in the mosaic, float32 (2,).
      scale: Scale factor from the image to the mosaic, float32 ().
      shape: Height and width of both the image and the mosaic.
    """

    corner: jax.Array
    scale: jax.Array
    shape: tuple[int, int]

    def covers(self) -> jax.Array:
        """Return the mask of the mosaic's pixels that show the image, bool (H, W)."""
        return self._covered(0)[:, None] & self._covered(1)[None]

    def paint(self, image: jax.Array) -> jax.Array:
        """Return the mosaic with only this image, on black, uint8 (H, W, C)."""
        return resample(image, self._weights(0), self._weights(1))

    def points(self, points: jax.Array) -> jax.Array:
        return self.corner + self.scale * points.astype(jnp.float32)

    def nearest(self, pixels: jax.Array) -> jax.Array:
        taken = pixels[self._below(0)][:, self._below(1)]
        return jnp.where(self.covers()[..., None], taken, 0)

    def linear(self, pixels: jax.Array) -> jax.Array:
        return resample_linear(pixels, self._weights(0), self._weights(1))

    def _sources(self, dim: int) -> jax.Array:
        """Map the mosaic's pixel centres to image coordinates, along one axis.

        Args:
          dim: Axis of the coordinates: 0 for y, 1 for x.
        """
        middles = jnp.arange(self.shape[dim], dtype=jnp.float32) + 0.5
        return (middles - self.corner[1 - dim]) / self.scale

    def _below(self, dim: int) -> jax.Array:
        pixels = jnp.floor(self._sources(dim)).astype(jnp.int32)
        return jnp.clip(pixels, 0, self.shape[dim] - 1)

    def _covered(self, dim: int) -> jax.Array:
        places = self._sources(dim)
        return (places >= 0) & (places < self.shape[dim])

    def _weights(self, dim: int) -> jax.Array:
        size, start = self.shape[dim], -self.corner[1 - dim] / self.scale
        matrix = weights(start, start + size / self.scale, size, size, "bilinear")
        # Far from the image all weights are 0, and normalizing them gives NaN.
        return jnp.where(self._covered(dim)[:, None], matrix, 0)


def mosaics(
    batch: dict[str, Any],
    keys: jax.Array,
    config: AugmentConfig,
    fill: jax.Array,
    follow: Follow,
    repeats: int = 1,
) -> dict[str, Any]:
    """Replace each image of a batch by a mosaic, and combine the targets.

    Args:
      batch: Batch of images, uint8 (B, H, W, C); B is a multiple of 4 x `repeats`.
      keys: PRNG key of each example, (B,).
      config: Augmentations to apply, with the probability of a mosaic.
      fill: Mean colour in 0..255, (C,), for pixels outside the four images.
      follow: Function (four targets, `Mosaic`) -> target of the task. It may change the
        shape of targets, and is also applied to examples without a mosaic.
      repeats: Number of consecutive copies of an example in the batch.
    """
    colour = jnp.round(fill).astype(batch["image"].dtype)
    pairs = batch["image"], batch["target"]
    four = [
        jax.tree.map(lambda x, n=n: neighbours(x, n, repeats), pairs)
        for n in range(MOSAIC_IMAGES)
    ]

    def one(key: jax.Array, *four: tuple[jax.Array, Any]) -> tuple[jax.Array, Any]:
        images, targets = zip(*four, strict=True)
        tiles = draw_tiles(jax.random.fold_in(key, NUMBER), images[0].shape[:2], config)
        painted = jnp.broadcast_to(colour, images[0].shape)
        for image, tile in zip(images, tiles, strict=True):
            covers = tile.covers()[..., None]
            painted = jnp.where(covers, tile.paint(image), painted)
        return painted, follow(targets, Mosaic(tiles))

    images, targets = jax.vmap(one)(keys, *four)
    return {**batch, "image": images, "target": targets}


def draw_tiles(
    key: jax.Array, shape: tuple[int, int], config: AugmentConfig
) -> tuple[Tile, ...]:
    """Draw the tiles of the four images of a mosaic.

    With probability 1 - `config.mosaic`, the first image fills the mosaic unchanged.
    """
    chosen, scale_key, point_key = jax.random.split(key, 3)
    applies = jax.random.bernoulli(chosen, np.float32(config.mosaic))
    least, most = MOSAIC_SCALE
    draw = jax.random.uniform(scale_key, (), jnp.float32)
    scale = jnp.where(applies, least + (most - least) * draw, 1)
    size = jnp.array(shape[::-1], jnp.float32)
    away = jax.random.uniform(point_key, (2,), jnp.float32) - 0.5
    # The point is rounded, so that images with scale 1 are not interpolated.
    point = jnp.round(size / 2 + scale * away * size)
    point = jnp.where(applies, point, size)
    # (x, y) of the point in each image: 0 at the left or upper edge, 1 at the right or
    # lower edge.
    beyond = [jnp.array([1 - right, 1 - below], jnp.float32) for right, below in PLACES]
    return tuple(Tile(point - scale * size * x, scale, shape) for x in beyond)


def neighbours(x: jax.Array, count: int, repeats: int) -> jax.Array:
    """Shift the examples in each group of four cyclically, (B, ...).

    Args:
      x: Array of a batch.
      count: Number of positions by which to shift, 0 to 3.
      repeats: Number of consecutive copies of an example in the batch.
    """
    groups = x.reshape(-1, MOSAIC_IMAGES, repeats, *x.shape[1:])
    return jnp.roll(groups, -count, 1).reshape(x.shape)
