"""Parameters of mixup, cutmix and mosaics, used by tasks to combine targets.

The transform of a single image is a `Geometry` (`jaxtrain.data.augment.geometry`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

if TYPE_CHECKING:
    from jaxtrain.data.augment.mosaic import Tile

# Function that transforms a target like its image, (target, `Geometry`) -> target, or
# combines targets like their images, (targets, `Mixing` or `Mosaic`) -> target.
Follow = Callable[[Any, Any], Any]


def keep_target(target: Any, change: Any) -> Any:
    """Return a target unchanged."""
    del change
    return target


@dataclass(frozen=True)
class Mixing:
    """Mixup or cutmix of pairs of examples.

    The targets to combine are a pair: (targets of the batch, targets of the partners).

    Attributes:
      weight: Weight of each example of the batch, float32 (B,). The weight of the
        example's partner is 1 - `weight`.
    """

    weight: jax.Array


@dataclass(frozen=True)
class Pasting(Mixing):
    """Cutmix without mixup: rectangles are pasted from the partners.

    Attributes:
      own: Mask of the example's pixels: 1 outside the pasted rectangle, 0 inside,
        float32 (H, W).
    """

    own: jax.Array

    def pixels(self, targets: tuple[jax.Array, jax.Array], border: int = 0) -> Any:
        """Paste dense targets, (B, H, W), in the same rectangles as the images.

        Args:
          targets: Targets of the batch, and of the partners.
          border: Unused, as no pixel is outside the images.
        """
        del border
        one, other = targets
        return jnp.where(self.own > 0, one, other)


@dataclass(frozen=True)
class Mosaic:
    """Mosaic of four images. The targets to combine are a sequence of four targets.

    Attributes:
      tiles: Geometry of each image in the mosaic.
    """

    tiles: Sequence[Tile]

    def pixels(self, targets: Sequence[jax.Array], border: int = 0) -> jax.Array:
        """Combine dense targets, (H, W), into a mosaic, like the images.

        Args:
          targets: Target of each image.
          border: Value outside of all images.
        """
        joined = jnp.full_like(targets[0], border)
        for target, tile in zip(targets, self.tiles, strict=True):
            joined = jnp.where(tile.covers(), tile.pixels(target), joined)
        return joined
