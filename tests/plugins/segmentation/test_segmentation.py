"""Classes of pixels: losses against formulas, metrics against scikit-learn."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import metrics as oracle

from jaxtrain.config import AugmentConfig
from jaxtrain.data.augment.mix import mix_pairs
from jaxtrain.data.pixel_classes import IGNORED, PIXEL_CLASSES
from jaxtrain.errors import UserError
from jaxtrain.evaluation import resampling
from jaxtrain.plugins.segmentation import pixel_metrics
from jaxtrain.plugins.segmentation.task import Segmentation
from jaxtrain.tasks.metrics import lowest_class
from jaxtrain.tasks.target_transforms import transform_of
from jaxtrain.tasks.task_metrics import sums_of
from tests.helpers.command import float64
from tests.helpers.rows import each_row

NAMES = ("around", "disc", "square", "star")
SHAPE = (7, 9)


def task_of(**options: Any) -> Segmentation:
    return Segmentation((*SHAPE, 3), {PIXEL_CLASSES: NAMES}, **options)


def batch(num: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return logits and masks in which pixels do not count; an image has none."""
    rng = np.random.default_rng(seed)
    # The last class is nowhere true.
    masks = rng.integers(0, 3, (num, *SHAPE))
    logits = rng.normal(size=(num, *SHAPE, 4)) + 2 * np.eye(4)[masks]
    masks[rng.random(masks.shape) < 0.2] = IGNORED
    masks[-1] = IGNORED
    return logits, masks


# --- losses --------------------------------------------------------------------------


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def cross_entropy(logits: np.ndarray, mask: np.ndarray, **how: Any) -> float:
    """PyTorch's, and the focal loss of Lin et al. 2017, of one image."""
    known = mask != IGNORED
    if not known.any():
        return 0.0
    log_p, true = log_softmax(logits)[known], mask[known]
    weight = np.array(how.get("class_weights") or np.ones(4))[true]
    of_true = log_p[np.arange(len(true)), true]
    losses = -((1 - np.exp(of_true)) ** how.get("gamma", 0)) * of_true
    return float((weight * losses).sum() / weight.sum())


def dice(logits: np.ndarray, mask: np.ndarray) -> float:
    known = mask != IGNORED
    p, true = np.exp(log_softmax(logits))[known], mask[known]
    found = [
        1 - 2 * p[true == c, c].sum() / (p[:, c].sum() + (true == c).sum())
        for c in np.unique(true)
    ]
    return float(np.mean(found)) if found else 0.0


def lovasz(logits: np.ndarray, mask: np.ndarray) -> float:
    """Berman et al. 2018, algorithm 1, of one image."""
    known = mask != IGNORED
    p, true = np.exp(log_softmax(logits))[known], mask[known]
    found = []
    for c in np.unique(true):
        fg = (true == c).astype(float)
        errors = np.abs(fg - p[:, c])
        order = np.argsort(-errors, kind="stable")
        fg, errors = fg[order], errors[order]
        jaccard = 1 - (fg.sum() - fg.cumsum()) / (fg.sum() + (1 - fg).cumsum())
        found.append(errors @ np.diff(jaccard, prepend=0))
    return float(np.mean(found)) if found else 0.0


def both(logits: np.ndarray, mask: np.ndarray, **how: Any) -> float:
    return cross_entropy(logits, mask, **how) + dice(logits, mask)


@each_row(
    ("formula", "options"),
    [
        (cross_entropy, {}),
        (cross_entropy, {"class_weights": (1.0, 5.0, 0.5, 1.0)}),
        (partial(cross_entropy, gamma=2), {"loss": "focal"}),
        (dice, {"loss": "dice"}),
        (both, {"loss": "cross_entropy_dice"}),
        (lovasz, {"loss": "lovasz"}),
    ],
)
def test_losses_are_those_of_the_formulas(formula: Any, options: dict[str, Any]):
    logits, masks = batch()
    how = {name: value for name, value in options.items() if name != "loss"}
    expected = [formula(*pair, **how) for pair in zip(logits, masks, strict=True)]
    with float64(True):
        task, target = task_of(**options), jnp.asarray(masks)

        def loss(x: jax.Array) -> jax.Array:
            return task.loss(x, target, training=True)

        found = jax.jit(loss)(jnp.asarray(logits))
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
        slope = jax.jit(jax.grad(lambda x: loss(x).sum()))(jnp.asarray(logits))
        assert np.isfinite(slope).all() and (slope[masks == IGNORED] == 0).all()
        # What training lowers aside, evaluations tell the plain cross entropy.
        plain = [cross_entropy(*pair) for pair in zip(logits, masks, strict=True)]
        told = task.loss(jnp.asarray(logits), target, training=False)
        np.testing.assert_allclose(told, plain, rtol=1e-9)


def test_an_ignored_class_does_not_count():
    logits, masks = batch()
    task, plain = task_of(ignore_value=1), task_of()
    other = np.where(masks == 1, IGNORED, masks)
    for x, y in ((logits, masks), (logits, other)):
        found = task.loss(jnp.asarray(x), jnp.asarray(y), training=False)
        wanted = plain.loss(jnp.asarray(x), jnp.asarray(other), training=False)
        np.testing.assert_array_equal(found, wanted)


# --- metrics -------------------------------------------------------------------------


def without(counts: np.ndarray, ignored: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean IoU as torchmetrics' `MulticlassJaccardIndex` with `ignore_index`; Dice.

    Pixels whose target is the ignored class are no part of the counts: its row is 0.
    IoU = hits / (true + predicted - hits), Dice = 2 hits / (true + predicted), and the
    mean ("macro") is over the classes other than the ignored one that have a true or a
    predicted pixel. A pixel predicted as the ignored class is a miss of its own class.
    """
    hits, true, found = np.diag(counts), counts.sum(1), counts.sum(0)
    weight = (true + found > 0).astype(float)
    weight[ignored] = 0
    either = np.maximum(true + found, 1)
    iou, dice = hits / np.maximum(either - hits, 1), 2 * hits / either
    return (weight * iou).sum() / weight.sum(), (weight * dice).sum() / weight.sum()


def test_an_ignored_class_is_no_class_of_the_metrics():
    """Though it is predicted: these pixels are misses of their own classes."""
    logits, masks = batch(12)
    masks[:, 0, 0], logits[:, 0, 0] = 0, [0, 9, 0, 0]
    values = values_of(task_of(ignore_value=1), logits, masks)
    known = (masks != IGNORED) & (masks != 1)
    true, found = masks[known], logits.argmax(-1)[known]
    counts = oracle.confusion_matrix(true, found, labels=[0, 1, 2, 3])
    assert counts[0, 1] > 0 == counts[1].sum()
    np.testing.assert_array_equal(values["confusion_matrix"], counts)
    mean_iou, mean_dice = without(counts, 1)
    np.testing.assert_allclose(values["mean_iou"], mean_iou)
    np.testing.assert_allclose(values["mean_dice"], mean_dice)
    np.testing.assert_allclose(values["pixel_accuracy"], (true == found).mean())
    assert values["iou"][1] is values["dice"][1] is None
    assert lowest_class(values, Segmentation.lowest[0]) not in (None, 1)


def test_the_boundaries_of_an_ignored_class_do_not_count():
    """A pixel predicted as it would give it a score of 0."""
    masks = np.zeros((1, *SHAPE), int)
    masks[0, 4:] = 2
    found = masks.copy()
    found[0, 0, 0] = 1
    scores = [boundary_f(masks[0] == c, found[0] == c, 1) or 0.0 for c in (0, 2)]
    for ignored, expected in ((1, scores), (IGNORED, [*scores, 0])):
        task = task_of(ignore_value=ignored)
        values = values_of(task, 9.0 * np.eye(4)[found], masks)
        wanted = np.mean(expected)
        np.testing.assert_allclose(values["boundary_f_score"], wanted, rtol=1e-6)


def values_of(task: Segmentation, logits: np.ndarray, masks: np.ndarray) -> Any:
    ones = np.ones(len(masks), np.int32)
    sums = jax.jit(partial(sums_of, task))(
        jnp.asarray(logits), jnp.asarray(masks), ones
    )
    return task.values(jax.device_get(sums))


def test_metrics_are_those_of_scikit_learn():
    logits, masks = batch(12)
    values = values_of(task_of(), logits, masks)
    known = masks != IGNORED
    true, found = masks[known], logits.argmax(-1)[known]
    labels = [0, 1, 2, 3]
    matrix = oracle.confusion_matrix(true, found, labels=labels)
    np.testing.assert_array_equal(values["confusion_matrix"], matrix)
    each: Any = {"labels": labels, "average": None}
    iou = oracle.jaccard_score(true, found, **each)
    f1 = oracle.f1_score(true, found, **each)
    np.testing.assert_allclose(values["iou"], iou)
    np.testing.assert_allclose(values["dice"], f1)
    np.testing.assert_allclose(values["mean_iou"], np.mean(iou))
    np.testing.assert_allclose(values["pixel_accuracy"], (true == found).mean())
    assert values["num_examples"] == 11  # One image has no pixel that counts.


def test_an_image_without_a_pixel_that_counts_is_no_mistake_of_training():
    logits, masks = batch()
    known = masks != IGNORED
    shares = [
        (found == true)[some].mean()
        for found, true, some in zip(logits.argmax(-1), masks, known, strict=True)
        if some.any()
    ]
    found = task_of().train_metrics(jnp.asarray(logits), jnp.asarray(masks))
    np.testing.assert_allclose(found["pixel_accuracy"], np.mean(shares), rtol=1e-6)
    assert len(shares) == len(masks) - 1


def test_a_class_without_a_pixel_is_left_out_of_the_mean():
    masks = np.zeros((1, *SHAPE), int)
    masks[0, 0] = 1
    values = values_of(task_of(), 9.0 * np.eye(4)[masks], masks)
    assert values["iou"] == [1.0, 1.0, None, None]
    assert values["mean_iou"] == values["boundary_f_score"] == 1.0


def test_more_pixels_are_counted_than_an_int32_holds():
    counts = np.array([[2**33 + 5, 7], [3, 2**34 + 1]])
    sums = np.stack([counts // pixel_metrics.UNIT, counts % pixel_metrics.UNIT])
    assert sums.max() < 2**31
    np.testing.assert_array_equal(pixel_metrics.joined(sums.astype(np.int32)), counts)
    logits, masks = jnp.zeros((3, 80, 80, 2)), jnp.ones((3, 80, 80), jnp.int32)
    found = pixel_metrics.confusion_sums(logits, masks, masks > 0)
    np.testing.assert_array_equal(pixel_metrics.joined(found), [[0, 0], [19200, 0]])


def edges(area: np.ndarray) -> np.ndarray:
    """DAVIS's seg2bmap: pixels unlike the one right, below, or below to the right."""
    height, width = area.shape
    found = np.zeros(area.shape, bool)
    for y in range(height):
        for x in range(width):
            v, u = min(y + 1, height - 1), min(x + 1, width - 1)
            others = area[y, u], area[v, x], area[v, u]
            found[y, x] = any(other != area[y, x] for other in others)
    return found


def boundary_f(true: np.ndarray, found: np.ndarray, reach: float) -> float | None:
    """Csurka et al. 2013, by the distances of all pairs of pixels."""
    one, other = np.argwhere(edges(true)), np.argwhere(edges(found))
    if not len(one) + len(other):
        return None
    if not len(one) or not len(other):
        return 0.0
    far = np.linalg.norm(one[:, None] - other, axis=-1)
    recall, precision = ((far.min(axis) <= reach).mean() for axis in (1, 0))
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def test_boundaries_are_compared_as_defined():
    """Within 0.8 % of a diagonal of less than 125 pixels: one pixel."""
    logits, masks = batch(4, seed=3)
    masks = masks % 3  # All count.
    logits = np.random.default_rng(1).normal(size=logits.shape) + 3 * np.eye(4)[masks]
    of_classes: list[list[float]] = [[] for _ in NAMES]
    for true, found in zip(masks, logits.argmax(-1), strict=True):
        for c in range(4):
            score = boundary_f(true == c, found == c, 1)
            if score is not None:
                of_classes[c].append(score)
    expected = np.mean([np.mean(some) for some in of_classes if some])
    values = values_of(task_of(), logits, masks)
    np.testing.assert_allclose(values["boundary_f_score"], expected, rtol=1e-5)


def test_boundaries_beside_pixels_that_do_not_count_are_none():
    masks = np.zeros((1, *SHAPE), int)
    masks[0, 3:] = IGNORED
    found = np.zeros((1, *SHAPE), int)
    found[0, 3:] = 2
    values = values_of(task_of(), 9.0 * np.eye(4)[found], masks)
    assert values["boundary_f_score"] is None and values["mean_iou"] == 1.0


@pytest.mark.slow
def test_mean_iou_has_an_interval():
    logits, masks = (jnp.asarray(x) for x in batch(20))
    task, ones = task_of(), jnp.ones(20, jnp.int32)
    counts = resampling.weights(jax.random.key(0), jnp.arange(20), 50)
    sums = jax.device_get(
        jax.jit(lambda *x: resampling.resampled_sums(task, *x))(
            logits, masks, ones, counts
        )
    )
    whole = jax.device_get(sums_of(task, logits, masks, ones))
    found = resampling.intervals(task, sums, whole)
    low, high = found["mean_iou"]
    assert low < task.values(whole)["mean_iou"] < high
    assert len(found["iou"]) == 4 and "confusion_matrix" in found


# --- the task ------------------------------------------------------------------------


@pytest.mark.slow
def test_a_pasted_rectangle_brings_its_mask():
    masks = np.random.default_rng(0).integers(0, 3, (8, *SHAPE)).astype(np.uint8)
    # An image whose colour is its mask.
    images = np.repeat(masks[..., None], 3, -1)
    made = {"image": jnp.asarray(images), "target": jnp.asarray(masks)}
    task, config = task_of(), AugmentConfig(cutmix=1.0)
    changed = False
    for seed in range(4):
        found = mix_pairs(made, jax.random.key(seed), config, transform_of(task))
        np.testing.assert_array_equal(found["image"][..., 0], found["target"])
        changed |= not np.array_equal(found["target"], masks)
    assert changed


@each_row(
    ("options", "told"),
    [
        (
            {"ignore_value": 7},
            "ignore_value = 7: expected a class of the data set, 0 to 3",
        ),
        ({"class_weights": (1.0, 2.0)}, "2 weights: expected 4, one per class"),
        ({"loss": "lovasz", "class_weights": (1.0,) * 4}, "class_weights .* no effect"),
        ({"ignore_value": 256}, "ignore_value"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], told: str):
    with pytest.raises(UserError, match=told):
        task_of(**options)


def test_balanced_weights_are_one_over_the_pixels():
    counts = np.zeros(256, int)
    counts[[0, 1, 2, IGNORED]] = 600, 300, 100, 77
    facts = {PIXEL_CLASSES: NAMES, "pixel_counts": lambda: counts}
    logits, masks = batch()
    balanced = Segmentation((*SHAPE, 3), facts, class_weights="balanced")
    given = task_of(class_weights=(1 / 600, 1 / 300, 1 / 100, 0.0))
    ours, theirs = (t.loss(logits, masks, training=True) for t in (balanced, given))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)  # Roundings of float32.
    ours, theirs = (t.loss(logits, masks, training=False) for t in (balanced, given))
    np.testing.assert_array_equal(ours, task_of().loss(logits, masks, training=False))
    np.testing.assert_array_equal(ours, theirs)
    # Without the class that does not count, one is left.
    counts[0] = 0
    with pytest.raises(UserError, match="pixels of 1 class;"):
        options = {"class_weights": "balanced", "ignore_value": 1}
        Segmentation((*SHAPE, 3), facts, **options)


def test_other_targets_are_refused():
    with pytest.raises(UserError, match="the data set has no masks"):
        Segmentation((8, 8, 1), {"num_classes": 3})
    task = task_of()
    with pytest.raises(UserError, match="expected masks"):
        task.check_targets(np.zeros(3, np.int32), "split 'train'")
    with pytest.raises(UserError, match="the value 4"):
        task.check_targets(np.full((2, *SHAPE), 4, np.uint8), "split 'train'")
