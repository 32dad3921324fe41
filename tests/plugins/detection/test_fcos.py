"""What FCOS learns, against plain loops; its losses and boxes against formulas."""

import itertools
import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrain.data.augment import affine
from jaxtrain.data.augment.geometry import Affine, Flip, PaddedCrop, ResizedBox
from jaxtrain.plugins.detection import box_geometry, box_places, fcos

STRIDES, BOUNDS = (4, 8, 16), ((0, 16), (16, 32), (32, math.inf))


def random_boxes(rng: Any, num: int, size: int = 64) -> np.ndarray:
    """Return boxes with whole sides of 2 pixels or more."""
    corner = rng.integers(0, size - 2, (num, 2))
    side = rng.integers(2, size // 2, (num, 2))
    return np.concatenate([corner, np.minimum(corner + side, size)], -1).astype(float)


def one_target(rng: Any, num: int = 6) -> dict[str, np.ndarray]:
    classes = rng.integers(0, 5, num)
    classes[-1] = -1
    crowd = np.zeros(num, bool)
    crowd[-2] = True
    return {
        "boxes": random_boxes(rng, num),
        "classes": classes.astype(np.int32),
        "crowd": crowd,
        "size": np.array([64, 64], np.float32),
    }


def places() -> box_places.Places:
    return box_places.make_places([(16, 16), (8, 8), (4, 4)], STRIDES, BOUNDS)


def assigned_by_loops(target: Any, radius: float) -> tuple[list[int], list[Any]]:
    """Assign as the paper says, place by place and box by box."""
    labels, distances = [], []
    for stride, (low, high) in zip(STRIDES, BOUNDS, strict=True):
        num = 64 // stride
        for row, column in itertools.product(range(num), range(num)):
            x, y = column * stride + stride / 2, row * stride + stride / 2
            best = math.inf
            label, sides = -1, [1.0] * 4
            for box, kind, crowd in zip(
                target["boxes"], target["classes"], target["crowd"], strict=True
            ):
                left, top, right, bottom = box
                if kind < 0 or crowd:
                    continue
                found = [x - left, y - top, right - x, bottom - y]
                middle = (left + right) / 2, (top + bottom) / 2
                near = max(abs(x - middle[0]), abs(y - middle[1])) < radius * stride
                area = (right - left) * (bottom - top)
                reached = low <= max(found) <= high
                if min(found) > 0 and near and reached and area < best:
                    best, label, sides = area, kind, found
            labels.append(int(label))
            distances.append(sides)
    return labels, distances


@pytest.mark.parametrize("seed", range(2))
def test_places_learn_the_boxes_of_the_paper(seed: int) -> None:
    target = one_target(np.random.default_rng(seed))
    found = box_places.assign(jax.tree.map(jnp.asarray, target), places(), 1.5)
    labels, distances = assigned_by_loops(target, 1.5)
    assert found.label.tolist() == labels
    assert max(labels) >= 0
    np.testing.assert_array_equal(found.distances, np.array(distances))
    # Places in the crowd that have no box learn nothing.
    left, top, right, bottom = target["boxes"][-2]
    x, y = places().points.T
    inside = (x > left) & (x < right) & (y > top) & (y < bottom)
    np.testing.assert_array_equal(found.ignored, inside & (np.array(labels) < 0))


def test_overlaps_are_those_of_torchvision() -> None:
    """Numbers of torchvision 0.28.0: generalized_box_iou, box_iou, in float64."""
    boxes = jnp.array([[0.0, 0, 10, 10], [2, 3, 7, 9], [20, 20, 24, 30]])
    others = jnp.array([[5.0, 5, 15, 15], [0, 0, 10, 10], [0, 0, 5, 5]])
    found = box_geometry.generalized_iou(boxes[:, None], others[None])
    np.testing.assert_allclose(found, GENERALIZED, atol=1e-6)
    found = box_geometry.iou(boxes[:, None], others[None])
    np.testing.assert_allclose(found, PLAIN, atol=1e-6)


PLAIN = [
    [0.142857143, 1.0, 0.25],
    [0.065573770, 0.3, 0.122448980],
    [0.0, 0.0, 0.0],
]
GENERALIZED = [
    [-0.079365079, 1.0, 0.25],
    [-0.152374947, 0.3, -0.099773243],
    [-0.705263158, -0.805555556, -0.909722222],
]


def test_focal_loss_is_that_of_the_paper() -> None:
    logits, true = jnp.array([-2.0, 0.5, 3.0, 0.1]), jnp.array([1.0, 0.0, 1.0, 0.0])
    found = fcos.focal_losses(logits, true, 0.25, 2.0)
    for x, y, loss in zip(logits.tolist(), true.tolist(), found.tolist(), strict=True):
        p = 1 / (1 + math.exp(-x))
        chance, alpha = (p, 0.25) if y else (1 - p, 0.75)
        expected = -alpha * (1 - chance) ** 2 * math.log(chance)
        assert loss == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_losses_of_images_are_their_own() -> None:
    rng = np.random.default_rng(1)
    targets = [one_target(rng) for _ in range(3)]
    targets[2]["classes"] = np.full_like(targets[2]["classes"], -1)
    target = jax.tree.map(lambda *x: jnp.stack(x), *targets)
    num = len(places().points)
    flat = fcos.Flat(
        jnp.asarray(rng.normal(size=(3, num, 5)) - 3, jnp.float32),
        jnp.asarray(np.exp(rng.normal(size=(3, num, 4))) * 8, jnp.float32),
        jnp.asarray(rng.normal(size=(3, num)), jnp.float32),
    )
    every = fcos.losses(flat, target, places())
    for i in range(3):
        own, its = jax.tree.map(lambda x, i=i: x[i : i + 1], (flat, target))
        alone = fcos.losses(own, its, places())
        for name, x in alone.items():
            np.testing.assert_allclose(x[0], every[name][i], rtol=1e-5)
    assert every["boxes"][2] == 0
    assert every["centerness"][2] == 0
    grads = jax.grad(lambda x: fcos.losses(x, target, places())["boxes"].sum())
    assert all(np.isfinite(x).all() for x in grads(flat))


@pytest.mark.slow
def test_perfect_outputs_have_no_loss_of_boxes_and_find_them() -> None:
    target = one_target(np.random.default_rng(2))
    found = box_places.assign(jax.tree.map(jnp.asarray, target), places(), 1.5)
    sure = 20 * (2 * jax.nn.one_hot(found.label, 5) - 1)
    middle = box_places.centerness(found.distances)
    logits = jnp.log(middle / (1 - middle + 1e-6))
    flat = fcos.Flat(sure[None], found.distances[None], logits[None])
    batch = jax.tree.map(lambda x: jnp.asarray(x)[None], target)
    losses = fcos.losses(flat, batch, places())
    assert losses["boxes"][0] < 1e-5
    assert losses["classes"][0] < 1e-5
    boxes, scores = fcos.candidates(flat, places(), (64, 64))
    out = fcos.detect(
        boxes, scores, num=200, keep=20, score_threshold=0.05, nms_threshold=0.6
    )
    there = np.array(out["classes"][0]) >= 0
    learnt = {
        tuple(fcos.to_boxes(found.distances, places())[i].tolist())
        for i in np.flatnonzero(found.assigned)
    }
    assert {tuple(x) for x in np.array(out["boxes"][0])[there].tolist()} <= learnt
    assert there.any()


def nms_by_loops(boxes: Any, scores: Any, kinds: Any, threshold: float) -> list[int]:
    """Return the places of what stays, the best first."""
    overlap = np.asarray(box_geometry.iou(boxes[:, None], boxes[None]))
    order, kept = np.argsort(-scores, kind="stable").tolist(), []
    for i in order:
        if not any(kinds[i] == kinds[j] and overlap[i, j] > threshold for j in kept):
            kept.append(i)
    return kept


def test_of_equal_scores_the_first_place_is_the_best() -> None:
    """Also of the last that is kept, whatever images are beside."""
    rng, num = np.random.default_rng(2), 3
    boxes = np.stack([random_boxes(rng, 40, 32) for _ in range(num)], dtype=np.float32)
    kinds = rng.integers(0, 3, (num, 40))
    values = rng.choice([0.25, 0.5, 0.75], (num, 40)).astype(np.float32)
    scores = np.where(np.arange(3) == kinds[..., None], values[..., None], 0)
    limits: Any = {
        "num": 40,
        "keep": 6,
        "score_threshold": 0.05,
        "nms_threshold": 0.3,
    }
    out = jax.jit(partial(fcos.detect, **limits))(boxes, scores)
    for i in range(num):
        kept = nms_by_loops(boxes[i], values[i], kinds[i], 0.3)[:6]
        assert len(set(values[i][kept])) < len(kept)
        np.testing.assert_array_equal(out["boxes"][i], boxes[i][kept])
        np.testing.assert_array_equal(out["classes"][i], kinds[i][kept])


def target_of(boxes: list[list[float]]) -> dict[str, jax.Array]:
    num = len(boxes)
    return {
        "boxes": jnp.array(boxes, jnp.float32),
        "classes": jnp.arange(num, dtype=jnp.int32),
        "crowd": jnp.zeros(num, bool),
        "size": jnp.array([32.0, 32.0]),
    }


GEOMETRIES: dict[str, tuple[Any, list[list[float]], list[int]]] = {
    "flip": (
        Flip(jnp.array(True), (32, 32), 1),
        [[20, 4, 30, 10], [0, 0, 8, 32]],
        [0, 1],
    ),
    "shift": (
        PaddedCrop(4, jnp.int32(8), jnp.int32(0)),
        [[6, 0, 16, 6], [28, 0, 32, 28]],
        [0, 1],
    ),
    "window": (
        ResizedBox(tuple(map(jnp.float32, (0, 0, 16, 16))), 32),
        [[4, 8, 24, 20], [0, 0, 0, 0]],
        [0, -1],
    ),
    # A quarter turn, counter-clockwise.
    "turn": (
        Affine(jnp.asarray(affine.fixed(np.array(affine.rotate(90.0, 32, 32))))),
        [[4, 20, 10, 30], [0, 0, 32, 8]],
        [0, 1],
    ),
}


@pytest.mark.parametrize("name", GEOMETRIES)
def test_boxes_follow_their_image(name: str) -> None:
    geometry, boxes, classes = GEOMETRIES[name]
    target = target_of([[2, 4, 12, 10], [24, 0, 32, 32]])
    moved = box_geometry.transform_boxes(target, geometry)
    assert moved["classes"].tolist() == classes
    np.testing.assert_allclose(moved["boxes"], boxes, atol=1e-3)
