"""Changes that make one image of several, as stored targets see them.

A change of one image alone is a `Geometry`: `jaxtrain.data.augment.geometry`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

if TYPE_CHECKING:
    from jaxtrain.data.augment.mosaic import Tile

# (target of an example, where its image is taken) -> target; or (targets of the images
# that become one, `Mixing` or `Mosaic`) -> target.
Follow = Callable[[Any, Any], Any]


def keep_target(target: Any, change: Any) -> Any:
    """Return a target unchanged."""
    del change
    return target


@dataclass(frozen=True)
class Mixing:
    """Mixup or cutmix of the pairs of a batch.

    The targets are (those of the batch, those of the partners).

    Attributes:
      weight: Share of the former in the images, float32 (B,).
    """

    weight: jax.Array


@dataclass(frozen=True)
class Pasting(Mixing):
    """Cutmix alone: rectangles of the images are those of their partners.

    Attributes:
      own: 1 where a pixel of an image is its own, else 0, float32 (H, W).
    """

    own: jax.Array

    def pixels(self, targets: tuple[jax.Array, jax.Array], border: int = 0) -> Any:
        """Return arrays (B, H, W) with the same rectangles.

        Args:
          targets: Arrays of the batch, and of the partners.
          border: Unused: nothing comes from outside.
        """
        del border
        one, other = targets
        return jnp.where(self.own > 0, one, other)


@dataclass(frozen=True)
class Mosaic:
    """Mosaic of four images; the targets are those of an example each.

    Attributes:
      tiles: Geometry of each image in the mosaic.
    """

    tiles: Sequence[Tile]

    def pixels(self, targets: Sequence[jax.Array], border: int = 0) -> jax.Array:
        """Return the mosaic of arrays (H, W).

        Args:
          targets: Array of each image.
          border: Value where no image lies.
        """
        joined = jnp.full_like(targets[0], border)
        for target, tile in zip(targets, self.tiles, strict=True):
            joined = jnp.where(tile.covers(), tile.pixels(target), joined)
        return joined
