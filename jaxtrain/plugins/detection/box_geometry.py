"""Boxes on the device: overlaps, where they go with their image, which are the same.

Boxes are left, top, right and bottom, (..., 4).
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxtrain.data.augment.geometry import Geometry
from jaxtrain.data.augment.mosaic import Tile
from jaxtrain.data.boxes import MIN_AREA, PADDING

# Of the corners of a box: x and y among left, top, right and bottom.
CORNERS = ((0, 1), (2, 1), (2, 3), (0, 3))
# Least part of the area of a box that is left in a mosaic (ultralytics' `area_thr`).
MIN_SHARE = 0.1


def areas(boxes: jax.Array) -> jax.Array:
    """Return the area of each box, (...,); 0 of those turned inside out."""
    sides = jnp.maximum(boxes[..., 2:] - boxes[..., :2], 0)
    return sides[..., 0] * sides[..., 1]


def overlaps(boxes: jax.Array, others: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the areas of intersection and of union, of shapes that broadcast."""
    least = jnp.maximum(boxes[..., :2], others[..., :2])
    most = jnp.minimum(boxes[..., 2:], others[..., 2:])
    both = areas(jnp.concatenate([least, most], -1))
    return both, areas(boxes) + areas(others) - both


def iou(boxes: jax.Array, others: jax.Array) -> jax.Array:
    """Return the intersection over the union; 0 of boxes without area."""
    both, either = overlaps(boxes, others)
    return both / jnp.where(either > 0, either, 1)


def generalized_iou(boxes: jax.Array, others: jax.Array) -> jax.Array:
    """Return the GIoU (Rezatofighi et al. 2019, arXiv:1902.09630), -1 to 1.

    Of boxes with an area.
    """
    both, either = overlaps(boxes, others)
    least = jnp.minimum(boxes[..., :2], others[..., :2])
    most = jnp.maximum(boxes[..., 2:], others[..., 2:])
    around = areas(jnp.concatenate([least, most], -1))
    return both / either - (around - either) / around


def followed(
    target: dict[str, Any], geometry: Geometry, min_share: float = 0.0
) -> dict[str, Any]:
    """Return boxes of one image that was moved: what lies around their corners.

    They are cut at the border of the image; those of which too little is left become
    padding.

    Args:
      target: `boxes` (M, 4), `classes` (M,), `crowd` (M,) and `size` (2,).
      geometry: Where the image was moved to.
      min_share: Least part of the area of a moved box, but of crowds, that is left.
    """
    corners = geometry.points(target["boxes"][:, jnp.array(CORNERS)])
    boxes = jnp.concatenate([corners.min(1), corners.max(1)], -1)
    size = target["size"]
    if geometry.moved_size is not None:
        size = jnp.array(geometry.moved_size, size.dtype)
    whole = areas(boxes)
    boxes = clipped(boxes, size).astype(target["boxes"].dtype)
    stays = (target["classes"] >= 0) & (areas(boxes) >= MIN_AREA)
    if min_share:
        stays &= (areas(boxes) >= min_share * whole) | target["crowd"]
    return {
        "boxes": jnp.where(stays[:, None], boxes, 0),
        "classes": jnp.where(stays, target["classes"], PADDING),
        "crowd": target["crowd"] & stays,
        "size": size,
    }


def in_mosaic(
    targets: Sequence[dict[str, Any]], tiles: Sequence[Tile]
) -> dict[str, Any]:
    """Return the boxes of the images of a mosaic: as many places as all have together.

    Args:
      targets: Targets of the images, as `followed` takes them.
      tiles: Where each image is taken.
    """
    moved = [
        followed(target, tile, MIN_SHARE)
        for target, tile in zip(targets, tiles, strict=True)
    ]
    joined = jax.tree.map(lambda *parts: jnp.concatenate(parts), *moved)
    return {**joined, "size": targets[0]["size"]}


def clipped(boxes: jax.Array, size: jax.Array) -> jax.Array:
    """Return boxes cut at the border of an image of a height and width, (2,)."""
    height, width = size[0], size[1]
    return jnp.clip(boxes, 0, jnp.stack([width, height, width, height]))


def suppressed(
    boxes: jax.Array, classes: jax.Array, threshold: float
) -> tuple[jax.Array, jax.Array]:
    """Say which boxes stay: of two of a class that overlap the first one.

    Greedy, as torchvision's `batched_nms`, in a loop of fixed length.

    Args:
      boxes: Boxes of an image, the best first, (K, 4).
      classes: Class of each, (K,).
      threshold: Intersection over union above which boxes overlap.

    Returns:
      Whether each stays, bool (K,), and the intersections over the unions, (K, K).
    """
    num = len(boxes)
    found = iou(boxes[:, None], boxes[None])
    later = jnp.arange(num)[:, None] < jnp.arange(num)[None]
    beats = (found > threshold) & (classes[:, None] == classes[None]) & later

    def one(i: jax.Array, stays: jax.Array) -> jax.Array:
        return stays & ~(beats[i] & stays[i])

    return jax.lax.fori_loop(0, num, one, jnp.ones(num, bool)), found
