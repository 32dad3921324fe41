"""Large-scale jitter: the place of windows, their border, and masks that follow."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jaxtrain.config import AugmentConfig, DataConfig
from jaxtrain.data import images
from jaxtrain.data.fit import Fit
from jaxtrain.data.images import BORDER
from jaxtrain.data.pixel_classes import IGNORED
from jaxtrain.data.random_windows import Jitter
from jaxtrain.errors import UserError
from tests.helpers.images import load_images
from tests.helpers.masked import write_masks
from tests.helpers.rows import each_row

SIZE = 16


def window(fit: Fit, height: int, width: int, seed: int) -> np.ndarray:
    return np.array(fit.draw(height, width, (seed,), SIZE))


@each_row("crop_mode", ["squash", "border", "center"])
def test_a_window_is_of_an_image_resized_by_a_factor(crop_mode: str):
    fit = Fit(1.0, "bilinear", crop_mode, Jitter((0.5, 2.0), 40))
    height, width = 60, 90
    boxes = np.array([window(fit, height, width, i) for i in range(2000)])
    across, down = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    # At the factor 1 the image has these sides.
    sides = {"squash": (40, 40), "border": (40, 27), "center": (60, 40)}[crop_mode]
    factors = SIZE * width / across / sides[0]
    # Whole pixels: half a pixel more or less.
    assert 0.5 - 0.5 / 20 < factors.min() < 0.52 and 1.97 < factors.max() < 2.03
    np.testing.assert_allclose(factors.mean(), 1.25, atol=0.03)
    np.testing.assert_allclose(factors.std(), 1.5 / np.sqrt(12), atol=0.02)
    ratio = SIZE * height / down / sides[1] / factors
    np.testing.assert_allclose(ratio, 1, atol=0.05)
    # In pixels of the result the window lies in the image, or the image in it.
    for start, length, stored in ((0, across, width), (1, down, height)):
        first = boxes[:, start] * SIZE / length
        rest = stored * SIZE / length - SIZE - first
        np.testing.assert_allclose(first, np.round(first), atol=1e-9)
        np.testing.assert_allclose(rest, np.round(rest), atol=1e-9)
        assert (first * rest >= -1e-9).all()


def test_all_places_are_as_likely():
    fit = Fit(1.0, "bilinear", "squash", Jitter((1.0, 1.0), 20))
    places = [window(fit, 20, 20, i)[0] for i in range(5000)]
    values, counts = np.unique(places, return_counts=True)
    assert values.tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(counts, 1000, atol=150)  # Five deviations.
    small = Fit(1.0, "bilinear", "squash", Jitter((0.5, 0.5), 20))
    starts = {round(window(small, 20, 20, i)[1] / 2) for i in range(200)}
    assert starts == set(range(-6, 1))


@each_row("seed", range(4))
def test_a_window_is_that_part_of_the_resized_image(seed: int):
    """Pillow resizes the whole image; its pixels are cut out, with border around."""
    fit = Fit(1.0, "bilinear", "border", Jitter((0.3, 2.0), 24))
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 256, (31, 47, 3)).astype(np.uint8)
    left, top, right, bottom = window(fit, 31, 47, seed)
    rows, columns = round(31 * SIZE / (bottom - top)), round(47 * SIZE / (right - left))
    first, start = round(top * rows / 31), round(left * columns / 47)
    whole = np.asarray(
        Image.fromarray(image).resize((columns, rows), Image.Resampling.BILINEAR)
    )
    around = np.full((rows + 2 * SIZE, columns + 2 * SIZE, 3), BORDER, np.uint8)
    around[SIZE:-SIZE, SIZE:-SIZE] = whole
    expected = around[SIZE + first :, SIZE + start :][:SIZE, :SIZE]
    found = images.resize(image, SIZE, "bilinear", (left, top, right, bottom))
    # A box that does not begin at a pixel is placed in 32 bits: one level.
    assert abs(found.astype(int) - expected).max() <= 1
    border = (expected == BORDER).all(-1)
    assert (found[border] == BORDER).all()


@pytest.mark.plugins
def test_masks_follow_and_do_not_count_beyond_the_image(tmp_path: Path):
    write_masks(tmp_path, {"train": 24, "test": 4}, side=40)
    augment = AugmentConfig(scale_jitter=(0.25, 2.0))
    splits = load_images(
        source=f"masks:{tmp_path}",
        image_size=SIZE,
        sliding_size=40,
        crop_mode="squash",
        channels=1,
        augment=augment,
    )
    train = splits.train
    read = train.read(np.arange(len(train)), np.arange(len(train))[:, None], [])
    assert read["image"].shape == (len(train), SIZE, SIZE, 1)
    beyond = read["target"] == IGNORED
    # Of a small image, and of none that is larger than a window.
    assert beyond.any() and not beyond.all((1, 2)).any()
    assert (~beyond).all((1, 2)).any()
    assert (read["image"][beyond] == BORDER).all()
    inside = read["image"][..., 0][~beyond] // 70 == read["target"][~beyond]
    assert inside.mean() > 0.85  # All but the edges, which are means.
    # Without seeds all splits have whole images, as evaluations see them.
    for part in splits.named().values():
        whole = part.read(np.arange(len(part)))
        assert whole["image"].shape[1:] == (40, 40, 1)
        np.testing.assert_array_equal(whole["image"][..., 0] // 70, whole["target"])


def test_it_is_for_targets_that_have_a_place():
    with pytest.raises(UserError, match=r"scale_jitter .* for masks and boxes"):
        load_images(
            source="digits",
            image_size=8,
            augment=AugmentConfig(scale_jitter=(0.5, 2.0)),
        )


@each_row(
    ("fields", "told"),
    [
        (
            {"image_size": 32, "sliding_size": 32},
            "expected more than data.image_size = 32",
        ),
        ({"image_size": 32, "sliding_size": 64}, "no effect without .*scale_jitter"),
        ({"sliding_size": 64}, "no effect without data.image_size"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(fields: dict, told: str):
    with pytest.raises(UserError, match=told):
        DataConfig(**fields)
