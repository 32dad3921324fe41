"""Locations of FCOS, and the assignment of ground-truth boxes to locations.

Tian et al. 2020, arXiv:2006.09214, with centre sampling. A location inside several
boxes is assigned to the smallest box.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class Places:
    """The N locations of all pyramid levels.

    Attributes:
      points: (x, y) in pixels of the image, float32 (N, 2).
      stride: Stride of each location's level in pixels, (N,).
      least: Minimum distance from each location to the farthest side of an assigned
        box, in pixels, (N,).
      most: Maximum of this distance, (N,).
    """

    points: np.ndarray
    stride: np.ndarray
    least: np.ndarray
    most: np.ndarray


class Assigned(NamedTuple):
    """Training targets of the N locations of an image.

    Attributes:
      label: Class index of each location, (N,); -1 for background.
      distances: Distance of each location to the left, top, right and bottom side of
        its box in pixels, (N, 4); 1 for background.
      ignored: Whether each location is in a crowd, and has no loss, (N,).
    """

    label: jax.Array
    distances: jax.Array
    ignored: jax.Array

    @property
    def assigned(self) -> jax.Array:
        """Whether each location is assigned to a box, bool (N,)."""
        return self.label >= 0


def make_places(
    shapes: Sequence[tuple[int, int]],
    strides: Sequence[int],
    bounds: Sequence[tuple[float, float]],
) -> Places:
    """Return the locations of all pyramid levels.

    Args:
      shapes: (rows, columns) of the output maps of each level.
      strides: Stride of each level in pixels.
      bounds: `Places.least` and `Places.most` of each level.
    """
    points, stride, least, most = [], [], [], []
    levels = zip(shapes, strides, bounds, strict=True)
    for (rows, columns), pixels, (low, high) in levels:
        y, x = np.mgrid[:rows, :columns]
        points.append(np.stack([x.ravel(), y.ravel()], -1) * pixels + pixels / 2)
        num = rows * columns
        for some, value in ((stride, pixels), (least, low), (most, high)):
            some.append(np.full(num, value, np.float32))
    return Places(
        np.concatenate(points).astype(np.float32),
        np.concatenate(stride),
        np.concatenate(least),
        np.concatenate(most),
    )


def assign(target: Mapping[str, Any], places: Places, radius: float) -> Assigned:
    """Assign locations to the boxes of one image.

    Args:
      target: `boxes` (M, 4), `classes` (M,), -1 for padding, and `crowd` (M,).
      places: Locations of the levels.
      radius: Radius of centre sampling in strides.
    """
    boxes = target["boxes"]
    points, stride = (jnp.asarray(x, boxes.dtype) for x in _arrays(places)[:2])
    least, most = (jnp.asarray(x, boxes.dtype) for x in _arrays(places)[2:])
    distances = jnp.concatenate(
        [points[:, None] - boxes[None, :, :2], boxes[None, :, 2:] - points[:, None]], -1
    )
    inside = distances.min(-1) > 0
    middle = (boxes[:, :2] + boxes[:, 2:]) / 2
    offset = jnp.abs(points[:, None] - middle[None]).max(-1)
    farthest = distances.max(-1)
    reached = (farthest >= least[:, None]) & (farthest <= most[:, None])
    near = offset < radius * stride[:, None]
    counts = (target["classes"] >= 0) & ~target["crowd"]
    sides = boxes[:, 2:] - boxes[:, :2]
    area = jnp.where(
        inside & near & reached & counts, sides[:, 0] * sides[:, 1], jnp.inf
    )
    chosen = area.argmin(-1)
    assigned = jnp.take_along_axis(area, chosen[:, None], 1)[:, 0] < jnp.inf
    chosen_distances = jnp.take_along_axis(distances, chosen[:, None, None], 1)[:, 0]
    in_crowd = jnp.any(inside & target["crowd"], -1)
    return Assigned(
        jnp.where(assigned, target["classes"][chosen], -1),
        jnp.where(assigned[:, None], chosen_distances, 1),
        in_crowd & ~assigned,
    )


def centerness(distances: jax.Array) -> jax.Array:
    """Return the centerness of locations in their boxes, (...,), 0 to 1.

    Args:
      distances: Distance to the left, top, right and bottom of the box, (..., 4).
    """
    across, down = distances[..., 0::2], distances[..., 1::2]
    ratio = across.min(-1) / across.max(-1) * (down.min(-1) / down.max(-1))
    return jnp.sqrt(ratio)


def _arrays(places: Places) -> tuple[np.ndarray, ...]:
    return places.points, places.stride, places.least, places.most
