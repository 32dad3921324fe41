"""Changes that combine several images, for the transformation of targets.

Changes of a single image are a `Geometry` (`jaxtrain.data.augment.geometry`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

if TYPE_CHECKING:
    from jaxtrain.data.augment.mosaic import Tile

# (target, `Geometry`) -> target; or (targets of the combined images, `Mixing` or
# `Mosaic`) -> target.
Follow = Callable[[Any, Any], Any]


def keep_target(target: Any, change: Any) -> Any:
    """Return a target unchanged."""
    del change
    return target


@dataclass(frozen=True)
class Mixing:
    """Mixup or cutmix of pairs.

    Targets are (targets of the batch, targets of the partners).

    Attributes:
      weight: Share of the first image, float32 (B,).
    """

    weight: jax.Array


@dataclass(frozen=True)
class Pasting(Mixing):
    """Cutmix only: rectangles are pasted from the partners.

    Attributes:
      own: Mask of the image's own pixels, 1 or 0, float32 (H, W).
    """

    own: jax.Array

    def pixels(self, targets: tuple[jax.Array, jax.Array], border: int = 0) -> Any:
        """Paste the same rectangles in arrays (B, H, W).

        Args:
          targets: Arrays of the batch, and of the partners.
          border: Unused, as no pixel is outside.
        """
        del border
        one, other = targets
        return jnp.where(self.own > 0, one, other)


@dataclass(frozen=True)
class Mosaic:
    """Mosaic of four images; targets are a sequence of four.

    Attributes:
      tiles: Geometry of each image in the mosaic.
    """

    tiles: Sequence[Tile]

    def pixels(self, targets: Sequence[jax.Array], border: int = 0) -> jax.Array:
        """Mosaic of arrays (H, W).

        Args:
          targets: Array of each image.
          border: Value outside of the images.
        """
        joined = jnp.full_like(targets[0], border)
        for target, tile in zip(targets, self.tiles, strict=True):
            joined = jnp.where(tile.covers(), tile.pixels(target), joined)
        return joined
