"""Mixup, cutmix and class weights: formulas, distributions, and what is refused."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrain import own
from jaxtrain.config import (
    AugmentConfig,
    ClassificationConfig,
    Config,
    CustomConfig,
    DataConfig,
    ParallelConfig,
    SGDConfig,
    TrainConfig,
)
from jaxtrain.data.augment.mix import mix_pairs, swap
from jaxtrain.data.target_changes import Mixing
from jaxtrain.errors import UserError
from jaxtrain.tasks.balance import relative_weights
from jaxtrain.tasks.build import build_task
from jaxtrain.tasks.classification import MixedLabels
from jaxtrain.tasks.training_losses import losses_and_metrics
from jaxtrain.trainer.setup import build_setup
from jaxtrain.trainer.training_facts import class_counts
from tests.helpers.images import load_images
from tests.helpers.rows import each_row

BATCH, SIDE, CLASSES = 6, 12, 5
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (BATCH, SIDE, SIDE + 4, 3), dtype=np.uint8)
LABELS = np.arange(BATCH, dtype=np.int32) % CLASSES
FOLLOWED = "tests.helpers.autoencoder:Followed"


def join(targets: tuple[Any, Any], change: Mixing) -> MixedLabels:
    return MixedLabels(*targets, change.weight)


@functools.partial(jax.jit, static_argnames="config")
def mixed(config: AugmentConfig, seeds, images=IMAGES) -> Any:
    """Mix the same batch with a key for each seed."""

    def one(seed):
        batch = {"image": jnp.asarray(images), "target": jnp.asarray(LABELS)}
        found = mix_pairs(batch, jax.random.key(seed), config, join)
        return found["image"], found["target"]

    return jax.vmap(one)(seeds)


def test_partners_are_neighbours():
    assert swap(jnp.arange(6)).tolist() == [1, 0, 3, 2, 5, 4]
    # Of examples that are there twice: no example is mixed with itself.
    assert swap(jnp.arange(8) // 2, 2).tolist() == [1, 1, 0, 0, 3, 3, 2, 2]
    _, target = mixed(AugmentConfig(mixup=1.0), jnp.arange(2))
    assert (target.label == LABELS).all()
    assert (target.partner == LABELS[[1, 0, 3, 2, 5, 4]]).all()


def test_mixup_is_the_weighted_mean_by_a_beta_weight():
    images, target = mixed(AugmentConfig(mixup=0.4), jnp.arange(500))
    weights = np.asarray(target.weight, float)
    assert (weights == weights[:, :1]).all(), "one for all pairs of a step"
    w = weights[:, 0]
    own, partner = IMAGES.astype(float), IMAGES[[1, 0, 3, 2, 5, 4]].astype(float)
    expected = w[:, None, None, None, None] * own
    expected += (1 - w[:, None, None, None, None]) * partner
    np.testing.assert_allclose(images, expected, atol=1e-4)
    # Of Beta(0.4, 0.4): mean 1/2, variance 1 / (4 x 1.8).
    assert abs(w.mean() - 0.5) < 6 * np.sqrt(1 / 7.2 / 500)
    assert abs(w.var() - 1 / 7.2) < 0.02


def test_cutmix_puts_a_rectangle_of_the_partner_in():
    images, target = mixed(AugmentConfig(cutmix=1.0), jnp.arange(800))
    own, partner = IMAGES, IMAGES[[1, 0, 3, 2, 5, 4]]
    found = np.asarray(images)
    from_own = (found == own).all((1, 4))
    from_partner = (found == partner).all((1, 4))
    assert (from_own ^ from_partner).all()
    kept = from_own.mean((1, 2))
    np.testing.assert_allclose(target.weight[:, 0], kept, atol=1e-6)
    h, w = from_partner.any(2).sum(1), from_partner.any(1).sum(1)
    assert (from_partner.sum((1, 2)) == h * w).all()
    theirs = cutmix_by_torchvision(20_000)
    spread = 6 * theirs.std() / np.sqrt(800)
    assert abs(kept.mean() - theirs.mean()) < spread
    points = [0.1, 0.25, 0.5, 0.75, 0.9]
    np.testing.assert_allclose(
        np.quantile(kept, points), np.quantile(theirs, points), atol=0.06
    )
    middle = from_partner.mean(0)
    assert middle[0, 0] < middle[SIDE // 2, SIDE // 2]


def cutmix_by_torchvision(num: int) -> np.ndarray:
    """Return the parts of images that its CutMix keeps, for Beta(1, 1)."""
    rng = np.random.default_rng(1)
    reach = 0.5 * np.sqrt(1 - rng.random(num))
    outside = []
    for side in (SIDE, SIDE + 4):
        middle, half = rng.integers(0, side, num), (reach * side).astype(int)
        outside.append(np.minimum(middle + half, side) - np.maximum(middle - half, 0))
    return 1 - outside[0] * outside[1] / (SIDE * (SIDE + 4))


def test_either_way_comes_with_its_probability():
    config = AugmentConfig(mixup=1.0, cutmix=1.0)
    images, target = mixed(config, jnp.arange(2000))
    found, weight = np.asarray(images), np.asarray(target.weight[:, 0])
    left = (found == IMAGES).all((1, 2, 3, 4))
    of_one = (found == IMAGES) | (found == IMAGES[[1, 0, 3, 2, 5, 4]])
    cut = of_one.all((1, 2, 3, 4)) & ~left
    # Cutmix leaves an image whole where its rectangle is smaller than a pixel.
    assert left.mean() < 0.1 and abs(cut.mean() + left.mean() - 0.5) < 0.05
    assert (weight[left] == 1).all() and (weight[~left] < 1).all()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_is_the_weighted_sum_of_both_cross_entropies(smoothing: float):
    logits = RNG.normal(size=(BATCH, CLASSES)).astype(np.float32)
    target = MixedLabels(
        jnp.asarray(LABELS), swap(jnp.asarray(LABELS)), jnp.full(BATCH, 0.3)
    )
    task = build({"label_smoothing": smoothing})
    # As torch has it: the soft target is 0.3 of one row and 0.7 of another.
    soft = (
        0.3 * np.eye(CLASSES)[LABELS]
        + 0.7 * np.eye(CLASSES)[LABELS[[1, 0, 3, 2, 5, 4]]]
    )
    soft = (1 - smoothing) * soft + smoothing / CLASSES
    log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    losses, metrics = losses_and_metrics(task, jnp.asarray(logits), target)
    np.testing.assert_allclose(losses, -(soft * log_probabilities).sum(-1), 1e-5)
    first = logits.argmax(-1)
    hits = 0.3 * (first == LABELS) + 0.7 * (first == LABELS[[1, 0, 3, 2, 5, 4]])
    np.testing.assert_allclose(metrics["accuracy"], hits.mean(), rtol=1e-6)


def build(options: dict[str, Any], counts=(4, 0, 1, 2, 3)) -> Any:
    facts = {"num_classes": CLASSES, "class_counts": lambda: np.array(counts)}
    task = ClassificationConfig(**options)
    return build_task(Config(task=task), (8, 8, 1), facts)


def test_class_weights_are_relative_to_a_mean_of_1_over_the_examples():
    counts = np.array([40, 10, 50])
    balanced = relative_weights("balanced", counts)
    # As scikit-learn's compute_class_weight("balanced"): N / (C x n).
    np.testing.assert_allclose(balanced, 100 / (3 * counts))
    given = relative_weights((2.0, 0.0, 4.0), counts)
    np.testing.assert_allclose(given, np.array([2, 0, 4]) / 2.8)
    for weights in (balanced, given):
        assert np.isclose((weights * counts).sum() / 100, 1)
    assert relative_weights("balanced", np.array([3, 0, 3])).tolist() == [1, 0, 1]


def test_weights_count_in_training_alone():
    task = build({"class_weights": (1.0, 2.0, 0.0, 4.0, 1.0), "label_smoothing": 0.1})
    plain = build({"label_smoothing": 0.1})
    logits = jnp.asarray(RNG.normal(size=(BATCH, CLASSES)), jnp.float32)
    labels = jnp.asarray(LABELS)
    weights = np.array([1, 2, 0, 4, 1]) / ((4 + 2 * 4 + 3) / 10)
    ours, theirs = (t.loss(logits, labels, training=True) for t in (task, plain))
    np.testing.assert_allclose(ours, weights[LABELS] * theirs, rtol=1e-6)
    ours, theirs = (t.loss(logits, labels, training=False) for t in (task, plain))
    np.testing.assert_array_equal(ours, theirs)
    target = MixedLabels(labels, swap(labels), jnp.full(BATCH, 0.25))
    both = [t.loss(logits, labels, training=True) for t in (task,)]
    other = task.loss(logits, swap(labels), training=True)
    np.testing.assert_allclose(
        task.loss(logits, target, training=True), 0.25 * both[0] + 0.75 * other, 1e-6
    )


def test_classes_are_counted_in_the_training_split():
    train = load_images(source="synthetic:4x4x1/3/10", validation_fraction=0.0).train
    shuffled = config({}, task=ClassificationConfig(class_weights=(1.0, 2.0, 3.0)))
    assert class_counts(shuffled, train).tolist() == [4, 3, 3]
    balanced = dataclasses.replace(shuffled, data=DataConfig(sampling="balanced"))
    assert class_counts(balanced, train).tolist() == [1, 1, 1]


def config(augment: dict[str, Any], **sections: Any) -> Config:
    data = DataConfig(
        source="synthetic:8x8x3/4/64", batch_size=16, augment=AugmentConfig(**augment)
    )
    return Config(
        data=data,
        optimizer=SGDConfig(learning_rate=0.1),
        **{"train": TrainConfig(steps=1), **sections},
    )


@each_row(
    ("make", "message"),
    [
        (
            lambda: config({"mixup": 0.2}, task=CustomConfig(name=FOLLOWED)),
            "does not define the target of two mixed examples",
        ),
        (
            lambda: dataclasses.replace(
                config({"cutmix": 1.0}),
                data=DataConfig(batch_size=15, augment=AugmentConfig(cutmix=1.0)),
            ),
            "data.batch_size = 15 is not divisible by 2",
        ),
        (
            lambda: config({}, task=ClassificationConfig(class_weights=(1.0, 2.0))),
            "2 weights: expected 4",
        ),
    ],
)
def test_what_cannot_be_is_refused(make, message: str):
    with pytest.raises(UserError) as error:
        made = make()
        own.allow([FOLLOWED])
        build_setup(dataclasses.replace(made, parallel=ParallelConfig()))
    assert message in str(error.value)
