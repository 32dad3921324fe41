"""Box operations on the device: IoU, geometric transforms and NMS.

Boxes are arrays (..., 4) of left, top, right and bottom, in pixels.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxtrain.data.augment.geometry import Geometry
from jaxtrain.data.augment.mosaic import Tile
from jaxtrain.data.boxes import MIN_AREA, PADDING

# (x, y) of each corner, as indices into (left, top, right, bottom).
CORNERS = ((0, 1), (2, 1), (2, 3), (0, 3))
# Minimum fraction of a box's area that a mosaic must retain (ultralytics' `area_thr`).
MIN_SHARE = 0.1


def areas(boxes: jax.Array) -> jax.Array:
    """Return the area of each box, (...,); 0 for inverted boxes."""
    sides = jnp.maximum(boxes[..., 2:] - boxes[..., :2], 0)
    return sides[..., 0] * sides[..., 1]


def overlaps(boxes: jax.Array, others: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the areas of intersection and union of boxes, with broadcasting."""
    least = jnp.maximum(boxes[..., :2], others[..., :2])
    most = jnp.minimum(boxes[..., 2:], others[..., 2:])
    both = areas(jnp.concatenate([least, most], -1))
    return both, areas(boxes) + areas(others) - both


def iou(boxes: jax.Array, others: jax.Array) -> jax.Array:
    """Return the IoU of boxes, 0 to 1, with broadcasting; 0 for empty boxes."""
    both, either = overlaps(boxes, others)
    return both / jnp.where(either > 0, either, 1)


def generalized_iou(boxes: jax.Array, others: jax.Array) -> jax.Array:
    """Return the generalized IoU of boxes, -1 to 1, with broadcasting.

    Rezatofighi et al. 2019, arXiv:1902.09630. Boxes must have a positive area.
    """
    both, either = overlaps(boxes, others)
    least = jnp.minimum(boxes[..., :2], others[..., :2])
    most = jnp.maximum(boxes[..., 2:], others[..., 2:])
    around = areas(jnp.concatenate([least, most], -1))
    return both / either - (around - either) / around


def transform_boxes(
    target: dict[str, Any], geometry: Geometry, min_share: float = 0.0
) -> dict[str, Any]:
    """Replace each box of an image with the bounding box of its transformed corners.

    Boxes are clipped to the image; boxes with an area below `MIN_AREA` become padding.

    Args:
      target: `boxes` (M, 4), `classes` (M,), `crowd` (M,) and `size` (2,).
      geometry: Geometric transform of the image.
      min_share: Minimum fraction of a transformed box's area that must be inside the
        image. Boxes with a smaller fraction become padding, except crowds.

    Returns:
      The transformed target, with the same fields.
    """
    corners = geometry.points(target["boxes"][:, jnp.array(CORNERS)])
    boxes = jnp.concatenate([corners.min(1), corners.max(1)], -1)
    size = target["size"]
    if geometry.moved_size is not None:
        size = jnp.array(geometry.moved_size, size.dtype)
    whole = areas(boxes)
    boxes = clip_boxes(boxes, size).astype(target["boxes"].dtype)
    stays = (target["classes"] >= 0) & (areas(boxes) >= MIN_AREA)
    if min_share:
        stays &= (areas(boxes) >= min_share * whole) | target["crowd"]
    return {
        "boxes": jnp.where(stays[:, None], boxes, 0),
        "classes": jnp.where(stays, target["classes"], PADDING),
        "crowd": target["crowd"] & stays,
        "size": size,
    }


def mosaic_boxes(
    targets: Sequence[dict[str, Any]], tiles: Sequence[Tile]
) -> dict[str, Any]:
    """Return the target of a mosaic: the concatenated boxes of its transformed images.

    Args:
      targets: Target of each image, as in `transform_boxes`.
      tiles: Transform of each image to its tile.
    """
    moved = [
        transform_boxes(target, tile, MIN_SHARE)
        for target, tile in zip(targets, tiles, strict=True)
    ]
    joined = jax.tree.map(lambda *parts: jnp.concatenate(parts), *moved)
    return {**joined, "size": targets[0]["size"]}


def clip_boxes(boxes: jax.Array, size: jax.Array) -> jax.Array:
    """Clip boxes to an image; `size` is its height and width, (2,)."""
    height, width = size[0], size[1]
    return jnp.clip(boxes, 0, jnp.stack([width, height, width, height]))


def nms(
    boxes: jax.Array, classes: jax.Array, threshold: float
) -> tuple[jax.Array, jax.Array]:
    """Greedy per-class NMS, like torchvision's `batched_nms`, in a fixed-length loop.

    Args:
      boxes: Boxes of an image, in descending order of score, (K, 4).
      classes: Class of each box, (K,).
      threshold: IoU above which the lower-scoring box is suppressed.

    Returns:
      Mask of the boxes that NMS keeps, bool (K,), and the pairwise IoU, (K, K).
    """
    num = len(boxes)
    found = iou(boxes[:, None], boxes[None])
    later = jnp.arange(num)[:, None] < jnp.arange(num)[None]
    beats = (found > threshold) & (classes[:, None] == classes[None]) & later

    def one(i: jax.Array, stays: jax.Array) -> jax.Array:
        return stays & ~(beats[i] & stays[i])

    return jax.lax.fori_loop(0, num, one, jnp.ones(num, bool)), found
