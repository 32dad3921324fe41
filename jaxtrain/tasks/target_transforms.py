"""Changes of the targets of images that are cropped, mixed or joined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax

if TYPE_CHECKING:
    from jaxtrain.data.augment.geometry import Geometry
    from jaxtrain.data.augment.mosaic import Tile


class TargetTransforms:
    """Stored targets of changed images. By default they stay, and are not mixed."""

    def follow(self, target: Any, geometry: Geometry) -> Any:
        """Return the stored target of an image that is cropped, mirrored or turned.

        Args:
          target: Target of one example.
          geometry: Where the image is taken: `geometry.pixels` moves an array of its
            height and width, `geometry.points` coordinates.
        """
        del geometry
        return target

    def mix(self, target: Any, partner: Any, weight: jax.Array) -> Any:
        """Return the stored targets of examples that are mixed with their partners.

        A task that does not say so cannot be learnt with mixup and cutmix. One whose
        target comes from the image alone returns its own.

        Args:
          target: of a batch.
          partner: of the partners.
          weight: share of the former in the images, (B,), float32.
        """
        raise NotImplementedError

    def paste(self, target: Any, partner: Any, own: jax.Array) -> Any:
        """Return the stored targets of images with a rectangle of their partners.

        A task whose targets have pixels may say so in place of `mix`, for cutmix alone.

        Args:
          target: Targets of a batch.
          partner: Targets of the partners.
          own: One where the pixel of an image is its own, else 0, (H, W).
        """
        raise NotImplementedError

    def mosaic(self, targets: Sequence[Any], tiles: Sequence[Tile]) -> Any:
        """Return the stored target of a mosaic of four images.

        A task that does not say so cannot be learnt with mosaics.

        Args:
          targets: Targets of the images, an example each.
          tiles: Where each image is taken: as `geometry` of `follow`. Beyond their
            image, `pixels` has the border.
        """
        raise NotImplementedError
