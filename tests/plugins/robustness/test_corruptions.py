"""Each corruption against its formula, or the authors' libraries' written out."""

import io
import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib.colors
import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from jaxtrain.errors import UserError
from jaxtrain.json_files.write import write_digested
from jaxtrain.plugins.robustness import corruption_errors as robustness
from jaxtrain.plugins.robustness.corruptions import blur, corrupt, digital, weather
from jaxtrain.plugins.robustness.corruptions.corrupt import (
    CORRUPTIONS,
    Corruption,
    check_shape,
)
from jaxtrain.plugins.robustness.corruptions.levels import LARGE, SMALL, levels
from jaxtrain.tasks.metrics import Goal
from tests.helpers.rows import each_row

RNG = np.random.default_rng(3)
PIXELS = RNG.integers(0, 256, (3, 32, 32, 3)).astype(np.uint8)
IMAGES = PIXELS / 255
INDEX = np.array([4, 9, 2])


def draws(count: int = 3) -> Sequence[np.random.Generator]:
    """The same generators at each call."""
    return [np.random.default_rng(i) for i in range(count)]


def close(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, atol=1e-10)


@each_row("name", CORRUPTIONS)
@each_row("shape", [(9, 8, 1), (32, 32, 3)])
def test_a_corruption_is_a_function_of_the_example(
    name: str, shape: tuple[int, int, int]
):
    images = RNG.integers(0, 256, (3, *shape)).astype(np.uint8)
    corruption = Corruption(name, 3)
    found = corruption(images, INDEX)
    assert found.shape == images.shape and found.dtype == np.uint8
    assert np.any(found != images)
    np.testing.assert_array_equal(
        corruption(images[[2, 0]], INDEX[[2, 0]]), found[[2, 0]]
    )


@pytest.mark.parametrize("table", [SMALL, LARGE], ids=["small", "large"])
def test_higher_severities_change_more(table: dict[str, tuple[object, ...]]):
    """At least from the first to the last, where it is not one of another kind."""
    assert list(table) == list(CORRUPTIONS)
    smooth = ndimage.gaussian_filter(RNG.random((2, 64, 64, 3)), (0, 4, 4, 0))
    images = (smooth - smooth.min()) / np.ptp(smooth)
    # The image fades as frost grows; few pixels move far, or many a little.
    mixed = {"frost", "elastic_transform"}
    for name, function in CORRUPTIONS.items():
        assert len(table[name]) == 5
        first, last = (
            np.abs(np.clip(function(images, table[name][i], draws(2)), 0, 1) - images)
            for i in (0, 4)
        )
        assert name in mixed or first.mean() < last.mean(), name


def test_the_table_goes_by_the_size():
    assert levels(32, 32)[0] == levels(64, 200)[0] == "CIFAR-10-C"
    assert levels(224, 224)[0] == levels(96, 96)[0] == "ImageNet-C"


def test_noise_has_the_numbers_of_its_distribution():
    grey = np.full((2, 300, 300, 1), 0.5)
    found = corrupt.gaussian_noise(grey, 0.1, draws(2))
    # 180,000 values: their mean within 4.2 standard errors of 0.1 / 424.
    assert abs(found.mean() - 0.5) < 0.001 and abs(found.std() - 0.1) < 0.001
    found = corrupt.shot_noise(grey, 60, draws(2))
    # Poisson: mean and variance of the count are 30.
    assert abs((found * 60).mean() - 30) < 0.06
    assert abs((found * 60).var() - 30) < 0.5
    found = corrupt.impulse_noise(grey, 0.2, draws(2))
    for value, part in ((0, 0.1), (1, 0.1), (0.5, 0.8)):
        assert abs((found == value).mean() - part) < 0.004


@each_row(("radius", "alias"), [*SMALL["defocus_blur"], (10, 0.5)])
def test_defocus_is_a_correlation_with_a_disk(radius: float, alias: float):
    """The kernel as OpenCV makes it, mirrored at the pixels of the border."""
    reach, taps = (8, 3) if radius <= 8 else (10, 5)
    disk = np.array(
        [
            [float(x * x + y * y <= radius**2) for x in range(-reach, reach + 1)]
            for y in range(-reach, reach + 1)
        ]
    )
    line = [math.exp(-((i - taps // 2) ** 2) / (2 * alias**2)) for i in range(taps)]
    small = np.outer(line, line) / sum(line) ** 2
    kernel = ndimage.correlate(disk / disk.sum(), small, mode="mirror")
    found = blur.defocus_blur(IMAGES, (radius, alias), draws())
    for image, one in zip(IMAGES, found, strict=True):
        for c in range(3):
            close(one[..., c], ndimage.correlate(image[..., c], kernel, mode="mirror"))


def test_glass_moves_pixels_as_the_authors_program_does():
    """With its assignment, which is meant to swap two pixels and copies one."""
    sigma, reach, times = 0.4, 2, 2
    found = blur.glass_blur(IMAGES, (sigma, reach, times), draws())
    for image, draw, one in zip(IMAGES, draws(), found, strict=True):
        blurred = ndimage.gaussian_filter(image, (sigma, sigma, 0), mode="nearest")
        x = (255 * blurred).astype(np.uint8)
        count = 32 - 2 * reach
        moves = draw.integers(-reach, reach, (times, count, count, 2))
        for i in range(times):
            for h in range(32 - reach, reach, -1):
                for w in range(32 - reach, reach, -1):
                    dx, dy = moves[i, 32 - reach - h, 32 - reach - w]
                    x[h, w], x[h + dy, w + dx] = x[h + dy, w + dx], x[h, w]
        expected = ndimage.gaussian_filter(x / 255, (sigma, sigma, 0), mode="nearest")
        close(one, expected)


@each_row("angle", [-100.0, -30.0, 0.0, 45.0])
def test_motion_is_half_a_gaussian_along_a_line(angle: float):
    """Pixel by pixel, with ImageMagick's offsets; beyond the border it repeats."""
    image, (radius, sigma) = IMAGES[0][:9, :7], (3, 1.5)
    found = blur.along_line(image, radius, sigma, angle)
    width = 2 * radius + 1
    kernel = [math.exp(-(i**2) / (2 * sigma**2)) for i in range(width)]
    x, y = width * math.sin(math.radians(angle)), width * math.cos(math.radians(angle))
    for row in range(9):
        for column in range(7):
            total = np.zeros(3)
            for i, weight in enumerate(kernel):
                right = column + math.ceil(i * y / math.hypot(x, y) - 0.5)
                down = row + math.ceil(i * x / math.hypot(x, y) - 0.5)
                total += weight * image[min(max(down, 0), 8), min(max(right, 0), 6)]
            close(found[row, column], total / sum(kernel))


@each_row("factor", [1.0, 1.06, 1.25, 3.0, 4.5])
@each_row("size", [32, 31])
def test_zoom_is_that_of_scipy(factor: float, size: int):
    image = IMAGES[0][:size, :size]
    part = math.ceil(size / factor)
    first = (size - part) // 2
    cut = image[first : first + part, first : first + part]
    zoomed = np.asarray(ndimage.zoom(cut, (factor, factor, 1), order=1))
    trim = (len(zoomed) - size) // 2
    expected = zoomed[trim : trim + size, trim : trim + size]
    close(blur.zoom(image[None], factor)[0], expected)


@pytest.mark.parametrize("table", [SMALL, LARGE], ids=["small", "large"])
def test_zoom_blur_has_the_factors_of_the_authors(table: dict[str, tuple[object, ...]]):
    ends = (
        [(1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)]
        if table is SMALL
        else [(1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)]
    )
    lengths = [(len(np.arange(1, end, step)), step) for end, step in ends]
    assert list(table["zoom_blur"]) == lengths
    number, step = lengths[0]
    total = IMAGES + sum(blur.zoom(IMAGES, 1 + i * step) for i in range(number))
    close(blur.zoom_blur(IMAGES, lengths[0], draws()), total / (number + 1))


def diamond_square(draw: np.random.Generator, size: int, decay: float) -> np.ndarray:
    """The algorithm point by point, on a square that joins itself at its border."""
    heights, step, rough = np.zeros((size, size)), size, 100.0

    def set_points(rows: range, columns: range, offsets: list[tuple[int, int]]) -> None:
        drawn = draw.uniform(-rough, rough, (len(rows), len(columns)))
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                around = [
                    heights[(row + y) % size, (column + x) % size] for y, x in offsets
                ]
                heights[row, column] = sum(around) / 4 + rough * drawn[i, j]

    while step >= 2:
        half = step // 2
        grid, middles = range(0, size, step), range(half, size, step)
        cross = [(-half, 0), (half, 0), (0, -half), (0, half)]
        set_points(
            middles, middles, [(y, x) for y in (-half, half) for x in (-half, half)]
        )
        set_points(grid, middles, cross)
        set_points(middles, grid, cross)
        step, rough = half, rough / decay
    return (heights - heights.min()) / np.ptp(heights)


def test_fog_is_a_plasma_fractal_over_the_image():
    plasma = weather.plasma(draws()[1], 16, 16, 2.0)
    close(plasma, diamond_square(draws()[1], 16, 2.0))
    close(weather.plasma(draws()[1], 11, 9, 2.0), plasma[:11, :9])
    found = weather.fog(IMAGES[:, :16, :16], (1.5, 2.0), draws())[1]
    image = IMAGES[1, :16, :16]
    expected = (image + 1.5 * plasma[..., None]) * image.max() / (image.max() + 1.5)
    close(found, expected)


def test_snow_whitens_and_adds_flakes_that_fall():
    """Without flakes: the formula of the white; then its layer, which it shares."""
    none = weather.snow(IMAGES, (0, 0, 1, 0.5, 8, 3, 0.9), draws())
    luma = (IMAGES * [0.299, 0.587, 0.114]).sum(-1, keepdims=True)
    white = 0.9 * IMAGES + 0.1 * np.maximum(IMAGES, 1.5 * luma + 0.5)
    close(none, white)
    # A flake everywhere is white everywhere, whatever the angle: added from both sides.
    close(weather.snow(IMAGES, (1, 0, 1, 0.5, 8, 3, 0.9), draws()), white + 2)
    some = weather.snow(IMAGES, SMALL["snow"][2], draws()) - weather.snow(
        IMAGES, (0, 0, 1, 0.5, 8, 3, 0.9), draws()
    )
    close(some[..., 0], np.flip(some[..., 0], (1, 2)))


def test_frost_is_a_sum_of_the_image_and_bright_crystals():
    found = weather.frost(IMAGES, (0.6, 0.75), draws())
    ice = (found - 0.6 * IMAGES) / 0.75 / weather.FROST
    close(ice[..., 0], ice[..., 2])
    assert ice.min() >= 0 and 0.5 < ice.max() <= 1


def test_brightness_is_added_to_the_value_of_hsv():
    images = np.concatenate([IMAGES, np.zeros_like(IMAGES[:1])])
    hsv = matplotlib.colors.rgb_to_hsv(images)
    hsv[..., 2] = np.clip(hsv[..., 2] + 0.2, 0, 1)
    close(weather.brightness(images, 0.2, draws()), matplotlib.colors.hsv_to_rgb(hsv))
    grey = IMAGES[..., :1]
    close(weather.brightness(grey, 0.2, draws()), np.minimum(grey + 0.2, 1))


def test_contrast_is_about_the_mean_of_each_channel():
    found = digital.contrast(IMAGES, 0.4, draws())
    close(found.mean((1, 2)), IMAGES.mean((1, 2)))
    close(found.std((1, 2)), 0.4 * IMAGES.std((1, 2)))


def test_elastic_moves_three_points_and_then_each_pixel():
    """On ramps, whose values are the places that they come from."""
    y, x = np.indices((40, 40), np.float64)
    ramps = np.stack([x, y, np.zeros_like(x)], -1)[None]
    moved = digital.elastic_transform(ramps, (0, 0, 0.08), draws(1))[0]
    # Around the middle, 20, and 40 // 3 away from it; each place is (x, y).
    points = np.array([[33.0, 33.0], [33.0, 7.0], [7.0, 7.0]])
    to = points + draws(1)[0].uniform(-3.2, 3.2, (3, 2))
    back = np.linalg.lstsq(np.c_[to, np.ones(3)], points)[0]
    expected = np.stack([x, y, np.ones_like(x)], -1) @ back
    # Away from the border, where the ramp would turn back.
    inside = slice(8, 32), slice(8, 32)
    assert np.abs(expected - ramps[0, ..., :2])[inside].max() > 1
    close(moved[..., :2][inside], expected[inside])
    field = draws(1)[0]
    field.uniform(size=(3, 2))
    smooth = [
        0.1
        * 40
        * ndimage.gaussian_filter(
            field.uniform(-1, 1, (40, 40)), 0.04 * 40, mode="reflect", truncate=3
        )
        for _ in range(2)
    ]
    found = digital.elastic_transform(ramps, (0.1, 0.04, 0), draws(1))[0]
    close(found[..., 0][inside], (x + smooth[0])[inside])
    close(found[..., 1][inside], (y + smooth[1])[inside])


@pytest.mark.parametrize("channels", [1, 3])
def test_pixelate_and_jpeg_are_those_of_pillow(channels: int):
    pixels = PIXELS[..., :channels]
    stream = io.BytesIO()
    picture = Image.fromarray(pixels[0].squeeze())
    picture.save(stream, "JPEG", quality=58)
    found = Corruption("jpeg_compression", 3)(pixels, INDEX)[0].squeeze()
    np.testing.assert_array_equal(found, np.asarray(Image.open(stream)))
    box = Image.Resampling.BOX
    small = picture.resize((27, 27), box).resize((32, 32), box)
    found = Corruption("pixelate", 3)(pixels, INDEX)[0].squeeze()
    np.testing.assert_array_equal(found, np.asarray(small))


@pytest.mark.parametrize("shape", [(32, 32, 4), (6, 32, 3)])
def test_images_that_cannot_be_corrupted_are_refused(shape: tuple[int, int, int]):
    with pytest.raises(UserError, match="leave --corruptions out"):
        check_shape(shape)


def test_corruption_errors_are_over_those_of_the_baseline():
    errors = {name: [0.1, 0.2, 0.3, 0.4, 0.5] for name in CORRUPTIONS}
    alexnet = robustness.alexnet(1000, "ImageNet-C")
    assert alexnet is not None and robustness.alexnet(10, "ImageNet-C") is None
    found = robustness.corruption_errors(errors, alexnet)
    assert found["fog"] == pytest.approx(0.3 / 0.819324)
    # By hand: 0.3 x the mean of the reciprocals.
    expected = 0.3 * np.mean(1 / np.array(robustness.ALEXNET))
    assert found["mean"] == pytest.approx(expected)
    assert robustness.corruption_errors(errors, {**alexnet, "fog": 0.0})["mean"] is None


def test_the_error_is_of_the_main_metric():
    values = {"rmse": 3.5, "iou": 0.25, "psnr": 31.0, "none": None}
    assert robustness.error(Goal("rmse", higher=False), values) == 3.5
    assert robustness.error(Goal("iou", higher=True), values) == 0.75
    for name in ("psnr", "none"):
        with pytest.raises(UserError, match=f"--corruptions: {name} = "):
            robustness.error(Goal(name, higher=True), values)


def test_a_baseline_is_of_the_same_metric(tmp_path: Path):
    path = tmp_path / "evaluation.json"
    errors = {name: [0.1, 0.3] for name in CORRUPTIONS}
    found = {"errors": errors, "table": "CIFAR-10-C", "metric": "accuracy"}
    write_digested(path, {"corruptions": found})
    baseline = robustness.read_baseline(path, "CIFAR-10-C", "accuracy")
    assert baseline["fog"] == pytest.approx(0.2)
    with pytest.raises(UserError, match="error rates of accuracy, but this task uses"):
        robustness.read_baseline(path, "CIFAR-10-C", "rmse")
