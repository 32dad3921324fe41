"""What FCOS learns, and how its outputs become boxes (Tian et al. 2020).

arXiv:2006.09214. Each place of each level tells the distances from it to the four sides
of a box, in strides, as logarithms; the scores of the classes; and how much the place
is the middle of the box. Places learn boxes around whose middles they are; of several
boxes, the smallest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.dtypes import widen
from jaxtrain.tasks.box_geometry import clipped, generalized_iou, suppressed

# Of a distance in strides, its largest logarithm: more than any image has.
MAX_LOG = 8.0


@dataclass(frozen=True)
class Places:
    """The places of all levels, one level after the other.

    Attributes:
      points: (x, y) in pixels of the image, float32 (N, 2).
      stride: Stride of the level of each, (N,).
      least: Distance to the farthest side of its box, from which on it learns, (N,).
      most: The same, up to which it learns, (N,).
    """

    points: np.ndarray
    stride: np.ndarray
    least: np.ndarray
    most: np.ndarray


class Assigned(NamedTuple):
    """What each place of an image is to learn.

    Attributes:
      label: Class, (N,); -1 if there is none.
      distances: Pixels to the left, top, right and bottom of the box, (N, 4); 1 where
        there is none.
      ignored: Whether it learns nothing, as it is in a crowd, (N,).
    """

    label: jax.Array
    distances: jax.Array
    ignored: jax.Array

    @property
    def there(self) -> jax.Array:
        """Whether each place has a box, (N,)."""
        return self.label >= 0


def make_places(
    shapes: Sequence[tuple[int, int]],
    strides: Sequence[int],
    bounds: Sequence[tuple[float, float]],
) -> Places:
    """Return the places of levels of such rows and columns."""
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
    """Return what places learn of one image.

    Args:
      target: `boxes` (M, 4), `classes` (M,), -1 for padding, and `crowd` (M,).
      places: Places of the levels.
      radius: Strides around the middle of a box within which places learn it.
    """
    boxes = target["boxes"]
    points, stride = (jnp.asarray(x, boxes.dtype) for x in _arrays(places)[:2])
    least, most = (jnp.asarray(x, boxes.dtype) for x in _arrays(places)[2:])
    distances = jnp.concatenate(
        [points[:, None] - boxes[None, :, :2], boxes[None, :, 2:] - points[:, None]], -1
    )
    inside = distances.min(-1) > 0
    middle = (boxes[:, :2] + boxes[:, 2:]) / 2
    off = jnp.abs(points[:, None] - middle[None]).max(-1)
    farthest = distances.max(-1)
    reached = (farthest >= least[:, None]) & (farthest <= most[:, None])
    near = off < radius * stride[:, None]
    counts = (target["classes"] >= 0) & ~target["crowd"]
    sides = boxes[:, 2:] - boxes[:, :2]
    area = jnp.where(
        inside & near & reached & counts, sides[:, 0] * sides[:, 1], jnp.inf
    )
    chosen = area.argmin(-1)
    there = jnp.take_along_axis(area, chosen[:, None], 1)[:, 0] < jnp.inf
    own = jnp.take_along_axis(distances, chosen[:, None, None], 1)[:, 0]
    in_crowd = jnp.any(inside & target["crowd"], -1)
    return Assigned(
        jnp.where(there, target["classes"][chosen], -1),
        jnp.where(there[:, None], own, 1),
        in_crowd & ~there,
    )


def centerness(distances: jax.Array) -> jax.Array:
    """Return how much a place is the middle of its box, 0 to 1 (equation 3)."""
    across, down = distances[..., 0::2], distances[..., 1::2]
    ratio = across.min(-1) / across.max(-1) * (down.min(-1) / down.max(-1))
    return jnp.sqrt(ratio)


def focal_losses(
    logits: jax.Array, true: jax.Array, alpha: float, gamma: float
) -> jax.Array:
    """Return the focal loss of each number (Lin et al. 2017, arXiv:1708.02002)."""
    entropy = jax.nn.softplus(logits) - logits * true
    probability = jax.nn.sigmoid(logits)
    missed = probability * (1 - true) + (1 - probability) * true
    weight = alpha * true + (1 - alpha) * (1 - true)
    return weight * missed**gamma * entropy


class Flat(NamedTuple):
    """The outputs of all levels, one place after the other, (B, N, ...).

    Attributes:
      classes: Logits of the classes, (B, N, C).
      distances: Pixels to the left, top, right and bottom, (B, N, 4).
      centerness: Logits, (B, N).
    """

    classes: jax.Array
    distances: jax.Array
    centerness: jax.Array


def flatten(outputs: Sequence[Mapping[str, jax.Array]], places: Places) -> Flat:
    """Return the outputs of the levels, maps (B, rows, columns, features), in a row."""

    def joined(name: str) -> jax.Array:
        maps = [widen(level[name]) for level in outputs]
        return jnp.concatenate(
            [x.reshape(x.shape[0], -1, x.shape[-1]) for x in maps], 1
        )

    logs = jnp.minimum(joined("boxes"), MAX_LOG)
    stride = jnp.asarray(places.stride, logs.dtype)
    distances = jnp.exp(logs) * stride[:, None]
    return Flat(joined("classes"), distances, joined("centerness")[..., 0])


def to_boxes(distances: jax.Array, places: Places) -> jax.Array:
    """Return the boxes of distances (..., N, 4) from the places."""
    points = jnp.asarray(places.points, distances.dtype)
    return jnp.concatenate(
        [points - distances[..., :2], points + distances[..., 2:]], -1
    )


def losses(
    flat: Flat,
    target: Mapping[str, Any],
    places: Places,
    *,
    radius: float,
    alpha: float,
    gamma: float,
) -> dict[str, jax.Array]:
    """Return the losses of each image, (B,): `classes`, `boxes` and `centerness`.

    They are divided by what the image itself has, not the batch, so that the loss of an
    image does not depend on those beside it.
    """
    found = jax.vmap(lambda one: assign(one, places, radius))(dict(target))
    there = found.there.astype(flat.classes.dtype)
    num = jnp.maximum(there.sum(-1), 1)
    true = jax.nn.one_hot(found.label, flat.classes.shape[-1], dtype=there.dtype)
    focal = focal_losses(flat.classes, true, alpha, gamma).sum(-1)
    of_classes = jnp.where(found.ignored, 0, focal).sum(-1) / num
    distances = found.distances.astype(there.dtype)
    middle = centerness(distances) * there
    overlap = generalized_iou(
        to_boxes(flat.distances, places), to_boxes(distances, places)
    )
    whole = middle.sum(-1)
    of_boxes = ((1 - overlap) * middle).sum(-1) / jnp.where(whole > 0, whole, 1)
    entropy = jax.nn.softplus(flat.centerness) - flat.centerness * middle
    of_middles = (entropy * there).sum(-1) / num
    return {"classes": of_classes, "boxes": of_boxes, "centerness": of_middles}


def candidates(
    flat: Flat, places: Places, size: tuple[int, int]
) -> tuple[jax.Array, jax.Array]:
    """Return a box of each place, (B, N, 4), and the scores of its classes, (B, N, C).

    Args:
      size: Height and width of the image, at which boxes are cut.
    """
    boxes = to_boxes(flat.distances, places)
    middle = jax.nn.sigmoid(flat.centerness)[..., None]
    scores = jnp.sqrt(jax.nn.sigmoid(flat.classes) * middle)
    return clipped(boxes, jnp.array(size, boxes.dtype)), scores


def detect(
    boxes: jax.Array,
    scores: jax.Array,
    *,
    num: int,
    keep: int,
    score_threshold: float,
    nms_threshold: float,
) -> dict[str, jax.Array]:
    """Return what is found in images, the best first.

    Args:
      boxes: A box of each place, (B, N, 4).
      scores: Scores of its classes, (B, N, C).
      num: Number of candidates that are compared with each other.
      keep: Number of boxes that stay at most.
      score_threshold: Least score of a box.
      nms_threshold: Intersection over union above which boxes of a class are the same.

    Returns:
      `boxes` (B, keep, 4), `scores` (B, keep), 0 for padding, and `classes`, int32 (B,
      keep), -1 for padding.
    """
    num_classes = scores.shape[-1]
    num = min(num, scores.shape[1] * num_classes)

    def one(boxes: jax.Array, scores: jax.Array) -> dict[str, jax.Array]:
        best, place = jax.lax.top_k(scores.reshape(-1), num)
        some, kinds = boxes[place // num_classes], place % num_classes
        stays, _ = suppressed(some, kinds, nms_threshold)
        best = jnp.where(stays & (best >= score_threshold), best, 0)
        found, order = jax.lax.top_k(best, min(keep, num))
        there = found > 0
        rest = keep - len(found)
        return {
            "boxes": jnp.pad(
                jnp.where(there[:, None], some[order], 0), ((0, rest), (0, 0))
            ),
            "scores": jnp.pad(found, (0, rest)),
            "classes": jnp.pad(
                jnp.where(there, kinds[order], -1).astype(jnp.int32),
                (0, rest),
                constant_values=-1,
            ),
        }

    return jax.vmap(one)(boxes, scores)


def _arrays(places: Places) -> tuple[np.ndarray, ...]:
    return places.points, places.stride, places.least, places.most
