"""Losses and decoding of FCOS (Tian et al. 2020, arXiv:2006.09214).

Each location of each level predicts class logits, a centerness logit, and logarithms of
the distances to the four sides of a box, in units of the level's stride.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxtrain.dtypes import widen
from jaxtrain.plugins.detection.box_geometry import clip_boxes, generalized_iou, nms
from jaxtrain.plugins.detection.box_places import Places, assign, centerness

# Maximum logarithm of a distance in strides (exp(8) = 2,981), to prevent overflow.
MAX_LOG = 8.0
# Radius of centre sampling in strides.
RADIUS = 1.5
# Focal loss (Lin et al. 2017): weight of positives, and focusing parameter.
FOCAL_ALPHA, FOCAL_GAMMA = 0.25, 2.0


def focal_losses(
    logits: jax.Array, true: jax.Array, alpha: float, gamma: float
) -> jax.Array:
    """Return the elementwise focal loss (Lin et al. 2017, arXiv:1708.02002).

    Args:
      logits: Logits of binary classifications, of any shape.
      true: Binary targets, 0 or 1, of the same shape.
      alpha: Weight of positives; negatives have the weight 1 - alpha.
      gamma: Focusing parameter; 0 means weighted binary cross entropy.
    """
    entropy = jax.nn.softplus(logits) - logits * true
    probability = jax.nn.sigmoid(logits)
    missed = probability * (1 - true) + (1 - probability) * true
    weight = alpha * true + (1 - alpha) * (1 - true)
    return weight * missed**gamma * entropy


class Flat(NamedTuple):
    """Outputs of all levels, concatenated over locations, (B, N, ...).

    Attributes:
      classes: Class logits, (B, N, C).
      distances: Distances to the left, top, right and bottom side in pixels, (B, N, 4).
      centerness: Centerness logits, (B, N).
    """

    classes: jax.Array
    distances: jax.Array
    centerness: jax.Array


def flatten(outputs: Sequence[Mapping[str, jax.Array]], places: Places) -> Flat:
    """Concatenate the output maps (B, rows, columns, features) of all levels."""

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
    """Convert `Flat.distances` (..., N, 4) to boxes (..., N, 4)."""
    points = jnp.asarray(places.points, distances.dtype)
    return jnp.concatenate(
        [points - distances[..., :2], points + distances[..., 2:]], -1
    )


def losses(
    flat: Flat,
    target: Mapping[str, Any],
    places: Places,
) -> dict[str, jax.Array]:
    """Return the losses of each image, (B,): `classes`, `boxes` and `centerness`.

    Losses are normalized per image, not per batch, so the loss of an image does not
    depend on the other images of its batch.

    Args:
      flat: Outputs of all levels.
      target: Targets as for `assign`, with a leading batch axis.
      places: Locations of the levels.
    """
    found = jax.vmap(lambda one: assign(one, places, RADIUS))(dict(target))
    there = found.assigned.astype(flat.classes.dtype)
    num = jnp.maximum(there.sum(-1), 1)
    true = jax.nn.one_hot(found.label, flat.classes.shape[-1], dtype=there.dtype)
    focal = focal_losses(flat.classes, true, FOCAL_ALPHA, FOCAL_GAMMA).sum(-1)
    class_loss = jnp.where(found.ignored, 0, focal).sum(-1) / num
    distances = found.distances.astype(there.dtype)
    middle = centerness(distances) * there
    overlap = generalized_iou(
        to_boxes(flat.distances, places), to_boxes(distances, places)
    )
    total_centerness = middle.sum(-1)
    box_loss = ((1 - overlap) * middle).sum(-1) / jnp.where(
        total_centerness > 0, total_centerness, 1
    )
    entropy = jax.nn.softplus(flat.centerness) - flat.centerness * middle
    centerness_loss = (entropy * there).sum(-1) / num
    return {"classes": class_loss, "boxes": box_loss, "centerness": centerness_loss}


def candidates(
    flat: Flat, places: Places, size: tuple[int, int]
) -> tuple[jax.Array, jax.Array]:
    """Return the box of each location, (B, N, 4), and its class scores, (B, N, C).

    Args:
      flat: Outputs of all levels.
      places: Locations of the levels.
      size: Height and width of the image, to which boxes are clipped.
    """
    boxes = to_boxes(flat.distances, places)
    middle = jax.nn.sigmoid(flat.centerness)[..., None]
    scores = jnp.sqrt(jax.nn.sigmoid(flat.classes) * middle)
    return clip_boxes(boxes, jnp.array(size, boxes.dtype)), scores


def detect(
    boxes: jax.Array,
    scores: jax.Array,
    *,
    num: int,
    keep: int,
    score_threshold: float,
    nms_threshold: float,
) -> dict[str, jax.Array]:
    """Return the detections of each image after NMS, in descending order of score.

    Args:
      boxes: Box of each location, (B, N, 4).
      scores: Class scores of each box, (B, N, C).
      num: Number of top-scoring boxes that enter NMS.
      keep: Maximum number of detections per image.
      score_threshold: Minimum score of a detection.
      nms_threshold: IoU above which the lower-scoring box of a class is suppressed.

    Returns:
      `boxes` (B, keep, 4), `scores` (B, keep), 0 for padding, and `classes`, int32 (B,
      keep), -1 for padding.
    """
    num_classes = scores.shape[-1]
    num = min(num, scores.shape[1] * num_classes)

    def one(boxes: jax.Array, scores: jax.Array) -> dict[str, jax.Array]:
        best, place = jax.lax.top_k(scores.reshape(-1), num)
        some, kinds = boxes[place // num_classes], place % num_classes
        stays, _ = nms(some, kinds, nms_threshold)
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
