"""Resizing on the device against Pillow, and random windows of images of one size."""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from jaxtrain import keys
from jaxtrain.config import (
    AugmentConfig,
    DataConfig,
    ParallelConfig,
)
from jaxtrain.data import images, loader, sources
from jaxtrain.data.augment import windows
from jaxtrain.data.augment.apply import make_keys
from jaxtrain.data.augment.resize import GRAIN, resize, resize_nearest, weights
from jaxtrain.data.datasets import make_datasets
from jaxtrain.data.fit import Fit
from jaxtrain.data.preprocess import make_preprocess
from jaxtrain.data.random_windows import Window, random_window
from jaxtrain.parallel.mesh import make_mesh
from tests.helpers.tiers import thinned

# A weight is off by 1/2**16 at most: what differs is values that lie, but for that,
# just between two levels. Where the sizes have a common factor they are not that rare.
TIES = 0.06
METHODS = ["bilinear", "bicubic"]
# Height and width as stored, size of the result, box: made smaller, larger, both.
CASES = [
    (32, 48, 24, (3.25, 1.5, 40.75, 30.0)),
    (32, 48, 64, (3.0, 1.0, 20.0, 30.0)),
    (48, 32, 20, (0.0, 0.0, 32.0, 48.0)),
    (40, 40, 32, (10.5, 0.25, 20.5, 40.0)),
    (200, 150, 8, (0.0, 10.0, 150.0, 190.0)),
    (16, 16, 16, (0.0, 0.0, 16.0, 16.0)),
]


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def as_box(box):
    return tuple(map(jnp.float32, box))


def pillow(image: np.ndarray, size: int, method: str, box) -> np.ndarray:
    """Resize the columns, then the rows: Pillow's order hangs on sizes and version."""
    left, top, right, bottom = box
    kernel, picture = images.FILTERS[method], Image.fromarray(image)
    height = len(image)
    narrow = picture.resize((size, height), kernel, (left, 0, right, height))
    return np.asarray(narrow.resize((size, size), kernel, (0, top, size, bottom)))


def below(start: float, stop: float, size: int) -> list[int]:
    """Return the pixel below the middle of each new one, in exact arithmetic."""
    step = (Fraction(stop) - Fraction(start)) / size
    return [
        math.floor(Fraction(start) + (i + Fraction(1, 2)) * step) for i in range(size)
    ]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "case",
    [CASES[0], *thinned(3, map(pytest.param, CASES[1:]))],
    ids=str,
)
def test_as_pillow_resizes(case, method: str):
    height, width, size, box = case
    image = noise(height, width, 3)
    ours = np.asarray(resize(jnp.asarray(image), as_box(box), size, method))
    off = np.abs(ours.astype(int) - pillow(image, size, method, box))
    assert off.max() <= 1 and off.mean() < TIES
    theirs = Image.fromarray(image).resize((size, size), images.FILTERS[method], box)
    assert np.abs(ours.astype(int) - np.asarray(theirs)).mean() < 0.5
    nearest = np.asarray(resize_nearest(jnp.asarray(image), as_box(box), size))
    assert (
        nearest == image[below(box[1], box[3], size)][:, below(box[0], box[2], size)]
    ).all()


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_window_is_cut_out_before_it_is_resized(method: str):
    """Noise around the window must not come into its border."""
    image = noise(40, 50, 3)
    box = (7, 5, 31, 38)
    ours = resize(jnp.asarray(image), as_box(box), 16, method, within=True)
    cut = pillow(image[5:38, 7:31], 16, method, (0, 0, 24, 33))
    off = np.abs(np.asarray(ours).astype(int) - cut)
    assert off.max() <= 1 and off.mean() < TIES


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_products_are_exact_so_that_no_order_of_adding_counts(method: str):
    """Weights are whole numbers of grains, and no sum needs more than 24 bits."""
    for start, stop, stored, size in [
        (3, 90, 100, 32),
        (0.5, 30, 32, 64),
        (0, 9, 9, 9),
    ]:
        found = weights(jnp.float32(start), jnp.float32(stop), stored, size, method)
        grains = np.asarray(found, np.float64) * GRAIN
        assert (grains == grains.round()).all()
        assert (grains.sum(1) == GRAIN).all()
        assert np.abs(grains).sum(1).max() * 255 < 2**24


@pytest.mark.slow
def test_windows_have_the_distribution_of_those_on_the_host():
    """Torchvision's, which `tests/data/test_images.py` checks on the host."""
    window, height, width = Window((0.3, 0.9), (0.5, 1.25)), 60, 80
    each = make_keys(jax.random.key(0), jnp.int32(0), jnp.arange(4000))
    draw = jax.vmap(lambda key: jnp.stack(windows.random_window(key, 60, 80, window)))
    ours = np.asarray(draw(each))
    seeds = range(4000)
    theirs = np.array([random_window(height, width, (i,), window) for i in seeds])
    assert (ours == ours.round()).all()
    assert ours.min() >= 0 and ours[:, 2].max() <= width and ours[:, 3].max() <= height
    for a, b in zip(_facts(ours), _facts(theirs), strict=True):
        points = np.linspace(0.02, 0.98, 25)
        # Of 4,000 draws a quantile of a uniform number is off by 0.008; six of them.
        spread = np.ptp(b)
        np.testing.assert_allclose(
            np.quantile(a, points), np.quantile(b, points), atol=0.07 * spread
        )
        assert abs(a.mean() - b.mean()) < 6 * b.std() * np.sqrt(2 / 4000)


def _facts(boxes: np.ndarray) -> list[np.ndarray]:
    left, top, right, bottom = boxes.T.astype(float)
    w, h = right - left, bottom - top
    return [w * h, np.log(w / h), left, top, right, bottom]


def test_extreme_images_give_their_largest_window():
    each = jax.random.key(0)
    for height, width in ((1000, 6), (6, 1000)):
        found = windows.random_window(each, height, width, Window())
        expected = random_window(height, width, (1,))
        assert tuple(map(int, found)) == expected


random_windows = jax.jit(windows.random_windows, static_argnums=(2, 3, 4))
CROP = AugmentConfig(random_resized_crop=True, crop_scale=(0.2, 1.0))
FIELDS = {"source": "synthetic:20x24x3/4/64", "image_size": 16, "batch_size": 16}


def prepared(config: DataConfig, *, train: bool, cache: bool) -> list[np.ndarray]:
    """Return the images of the first batches as the model sees them."""
    splits, mesh = sources.load(config, 0), make_mesh(ParallelConfig())
    dataset = make_datasets(splits, mesh, cache, 0.0)[0]
    order = loader.make_order(config, dataset.source, 3)
    batches = loader.train_batches(config, dataset, mesh, order, 0, 3)
    augment = config.augment if train else None
    preprocess = make_preprocess(
        (0.0,) * 3,
        (1 / 255,) * 3,
        np.float32,
        augment,
        size=splits.size,
        fit=splits.fit,
    )
    step = jax.jit(preprocess)
    root = keys.root_key(0)
    return [
        np.asarray(step(dataset.on_device, batch, root, jnp.int32(i))["image"])
        for i, batch in enumerate(batches)
    ]


@pytest.mark.parametrize("method", METHODS)
def test_evaluation_takes_the_centre_as_on_the_host(method: str):
    """The same images through Pillow, where nothing is cropped at random."""
    sizes = {**FIELDS, "crop_pct": 0.75, "interpolation": method}
    on_device = prepared(DataConfig(**sizes, augment=CROP), train=False, cache=False)
    on_host = prepared(DataConfig(**sizes), train=False, cache=False)
    off = np.abs(np.stack(on_device).round() - np.stack(on_host).round())
    # Pillow may take the rows first here, and so round other values.
    assert off.mean() < 0.5


def test_a_target_is_cut_like_its_image_and_not_smoothed():
    image = np.repeat(noise(4, 20, 24, 1), 3, axis=-1)
    batch = {"image": image, "target": {"mask": image[..., :1] // 64, "label": image}}
    each = make_keys(keys.root_key(0), jnp.int32(0), jnp.arange(4))

    def follow(target, geometry):
        return {**target, "mask": geometry.pixels(target["mask"])}

    fit = Fit(window=Window((1.0, 1.0), (1.2, 1.2)))
    found = random_windows(batch, each, 10, fit, follow)
    nearest = [
        x[below(0, 20, 10)][:, below(0, 24, 10)] for x in batch["target"]["mask"]
    ]
    assert (found["target"]["mask"] == np.stack(nearest)).all()
    assert (found["target"]["label"] == image).all()
    make = jax.jit(windows.centre_crops, static_argnums=(1, 2, 3))
    centre = make(batch, 10, Fit(centre_part=1.0), follow)
    assert centre["target"]["mask"].shape == (4, 10, 10, 1)
    assert set(np.unique(centre["target"]["mask"])) <= {0, 1, 2, 3}
