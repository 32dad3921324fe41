"""Each augmentation against numpy, and its independence of the batch."""

import collections
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrain.config import AugmentConfig, DataConfig, ParallelConfig
from jaxtrain.data import loader, sources
from jaxtrain.data.augment import (
    augment,
    check_augmentations,
)
from jaxtrain.data.augment.apply import make_keys
from jaxtrain.data.augment.simple import alternating_flip
from jaxtrain.data.datasets import make_datasets
from jaxtrain.data.preprocess import normalize
from jaxtrain.data.target_changes import keep_target
from jaxtrain.errors import UserError
from jaxtrain.parallel.mesh import make_mesh
from tests.helpers.rows import each_row

FILL = np.array([50.4, 100.0, 199.6])
EVERYTHING = AugmentConfig(crop_padding=2, horizontal_flip=True, cutout_size=4)


def random_images(num: int, height: int = 8, width: int = 6, channels: int = 3):
    """Return images of which no two windows are equal, all below FILL's last colour."""
    shape = (num, height, width, channels)
    return np.random.default_rng(0).integers(1, 190, shape, dtype=np.uint8)


@functools.partial(jax.jit, static_argnames="config")
def augmented(config, images, indices, root_key, step):
    keys = make_keys(root_key, step, indices)
    batch = {"image": images, "target": jnp.zeros(len(images))}
    return augment(batch, keys, config, jnp.asarray(FILL))["image"]


def run(config: AugmentConfig, images, indices=None, seed: int = 0, step: int = 0):
    indices = np.arange(len(images)) if indices is None else indices
    return np.asarray(augmented(config, images, indices, jax.random.key(seed), step))


def assert_uniform(draws, num_values: int) -> None:
    """Every value is drawn, none 6 standard deviations off its share."""
    counts = collections.Counter(draws)
    assert len(counts) == num_values
    expected = len(draws) / num_values
    off = max(abs(count - expected) for count in counts.values())
    assert off < 6 * np.sqrt(expected)


def test_crop_is_a_window_of_the_padded_image_at_a_uniform_place():
    images = random_images(1000)
    cropped = run(AugmentConfig(crop_padding=2), images)
    places = []
    for before, after in zip(images, cropped, strict=True):
        padded = np.pad(before, ((2, 2), (2, 2), (0, 0)))
        found = [
            (top, left)
            for top in range(5)
            for left in range(5)
            if (padded[top : top + 8, left : left + 6] == after).all()
        ]
        assert len(found) == 1
        places += found
    assert_uniform(places, 25)


def test_flip_mirrors_one_half():
    images = random_images(4000)
    flipped = run(AugmentConfig(horizontal_flip=True), images)
    mirrored = (flipped == images[:, :, ::-1]).all((1, 2, 3))
    assert ((flipped == images).all((1, 2, 3)) ^ mirrored).all()
    assert abs(mirrored.mean() - 0.5) < 6 * 0.5 / np.sqrt(4000)


@pytest.mark.parametrize("size", [3, 4])
def test_cutout_paints_a_clipped_square_at_a_uniform_place(size: int):
    images = random_images(4000)
    painted = run(AugmentConfig(cutout_size=size), images)
    rows, columns = np.arange(8)[:, None], np.arange(6)[None]
    squares = {}
    for y in range(8):
        for x in range(6):
            in_rows = (rows >= y - size // 2) & (rows < y - size // 2 + size)
            in_columns = (columns >= x - size // 2) & (columns < x - size // 2 + size)
            squares[(in_rows & in_columns).tobytes()] = (y, x)
    assert len(squares) == 48
    changed = (painted != images).any(-1)
    assert_uniform([squares[square.tobytes()] for square in changed], 48)
    assert (painted[changed] == [50, 100, 200]).all()


def test_the_result_depends_on_key_and_index_alone():
    images = random_images(64)
    whole = run(EVERYTHING, images)
    assert whole.dtype == np.uint8
    order = np.random.default_rng(1).permutation(64)
    assert (run(EVERYTHING, images[order], order) == whole[order]).all()
    part = order[:5]
    assert (run(EVERYTHING, images[part], part) == whole[part]).all()


def test_another_step_seed_or_index_is_another_draw():
    images = np.repeat(random_images(1), 64, axis=0)
    first = run(EVERYTHING, images)
    others = [
        run(EVERYTHING, images, step=1),
        run(EVERYTHING, images, seed=1),
        run(EVERYTHING, images, indices=np.arange(64, 128)),
    ]
    for other in others:
        same = (first == other).all((1, 2, 3)).mean()
        assert same < 0.1
    assert len(np.unique(first, axis=0)) > 32


def test_an_augmentation_draws_the_same_whatever_else_is_on():
    images = random_images(64)
    flip = run(AugmentConfig(horizontal_flip=True), images)
    both = run(AugmentConfig(horizontal_flip=True, cutout_size=3), images)
    kept = (both == flip).all(-1)
    assert (kept.sum((1, 2)) >= 8 * 6 - 9).all()
    assert (kept.sum((1, 2)) < 8 * 6).all()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_normalize(dtype):
    images = random_images(4)
    mean, std = (0.1, 0.5, 0.9), (0.2, 0.25, 0.3)
    normalized = normalize(jnp.asarray(images), mean, std, dtype)
    expected = (images.astype(np.float64) / 255 - np.array(mean)) / np.array(std)
    assert normalized.dtype == dtype
    tolerance = 2e-6 if dtype == jnp.float32 else 2e-2
    np.testing.assert_allclose(
        np.asarray(normalized.astype(jnp.float32)), expected, atol=tolerance
    )


def test_alternating_flip_shows_both_sides_in_two_epochs():
    images = random_images(400)
    root, each = jax.random.key(0), jnp.arange(400)

    @jax.jit
    def mirror(epoch, indices=each, image=images):
        batch = {"image": image, "target": image[..., 0], "index": indices}
        batch["epoch"] = jnp.full(len(image), epoch)
        follow = lambda target, geometry: geometry.pixels(target)  # noqa: E731
        return alternating_flip(batch, root, follow)

    first, second, third = (mirror(epoch) for epoch in range(3))
    mirrored = (first["image"] == images[:, :, ::-1]).all((1, 2, 3))
    assert abs(mirrored.mean() - 0.5) < 6 * 0.5 / np.sqrt(400)
    assert (first["image"] == second["image"][:, :, ::-1]).all()
    assert (first["image"] == third["image"]).all()
    for found in (first, second):
        assert (found["target"] == found["image"][..., 0]).all()
    # The second time in a batch an example is mirrored if the first time it is not.
    twice = {"image": images, "target": images[..., 0], "index": each}
    twice |= {"epoch": jnp.zeros(400, jnp.int32), "repeat": jnp.ones(400, jnp.int32)}
    found = jax.jit(lambda batch: alternating_flip(batch, root, keep_target))(twice)
    assert (found["image"] == second["image"]).all()
    some = np.array([5, 300, 2])
    assert (mirror(1, some, images[some])["image"] == second["image"][some]).all()


def test_epoch_of_the_flip_is_that_of_the_data():
    config = DataConfig(batch_size=64, augment=AugmentConfig(alternating_flip=True))
    splits, mesh = sources.load(config, 0), make_mesh(ParallelConfig())
    for cache in (True, False):
        dataset = make_datasets(splits, mesh, cache, 0.0)[0]
        order = loader.make_order(config, dataset.source, 0)
        per_epoch = len(dataset.source) // 64
        batches = loader.train_batches(
            config, dataset, mesh, order, per_epoch - 1, 3 * per_epoch
        )
        epochs = [set(batch["epoch"].tolist()) for batch in batches]
        assert epochs == [{0}, *[{1}] * per_epoch, *[{2}] * per_epoch]


@pytest.mark.parametrize(
    ("fields", "channels", "message"),
    [
        ({"saturation": 0.5}, 1, "saturation = 0.5 requires images of 3 channels"),
        ({"grayscale": 0.5}, 1, "grayscale = 0.5 requires images of 3 channels"),
        ({"randaugment": 2}, 4, "randaugment = 2 requires images of 1 or 3 channels"),
    ],
)
def test_colours_that_images_do_not_have_are_refused(fields, channels, message):
    (problem,) = check_augmentations(AugmentConfig(**fields), (8, 8, channels))
    assert message in problem.text
    assert not check_augmentations(AugmentConfig(**fields), (8, 8, 3))


@each_row(
    ("fields", "message"),
    [
        ({"randaugment": 2, "randaugment_magnitude": 31}, "magnitude = 31: expected"),
        ({"erasing_value": "noise"}, "without data.augment.erasing"),
        ({"blur": 0.5, "blur_sigma": (0.0, 1.0)}, "blur_sigma = "),
    ],
)
def test_wrong_options_are_refused(fields, message: str):
    with pytest.raises(UserError, match=message):
        AugmentConfig(**fields)
