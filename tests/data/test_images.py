"""Conversion: channels, size, and the random crop."""

import numpy as np
import pytest
from PIL import Image

from jaxtrain.data import canvas, images
from jaxtrain.data.files import open_file
from jaxtrain.data.fit import Fit
from jaxtrain.data.random_windows import WINDOW, random_window
from tests.helpers.images import encode, load_images, read_all


def bilinear(image: np.ndarray, size: int) -> np.ndarray:
    """Enlarge a square image (side, side): half-pixel centres, edges repeated."""
    side = len(image)
    place = np.clip((np.arange(size) + 0.5) * side / size - 0.5, 0, side - 1)
    low = np.minimum(place.astype(int), side - 2)
    weights = np.zeros((size, side))
    weights[np.arange(size), low] = 1 - (place - low)
    weights[np.arange(size), low + 1] = place - low
    return weights @ image @ weights.T


def test_images_of_the_right_size_are_not_touched():
    image = np.random.default_rng(0).integers(0, 256, (28, 28, 3), dtype=np.uint8)
    assert images.centre_fit(image, 28) is image
    stored = load_images(source="synthetic:8x8x3/2/16").train
    same = load_images(source="synthetic:8x8x3/2/16", image_size=8, channels=3).train
    assert (read_all(stored)["image"] == read_all(same)["image"]).all()


def test_smaller_images_are_enlarged_whole():
    image = np.random.default_rng(0).integers(0, 256, (28, 28, 1), dtype=np.uint8)
    larger = images.centre_fit(image, 32)
    assert larger.shape == (32, 32, 1)
    assert np.abs(larger[..., 0] - bilinear(image[..., 0], 32)).max() <= 1
    wide = np.concatenate([image[:, :6] // 2, image, image[:, :6] // 2], axis=1)
    # At its border the square takes in a little of what lies beyond.
    assert (images.centre_fit(wide, 32)[:, 1:-1] == larger[:, 1:-1]).all()


def test_larger_images_lose_an_eighth_and_are_antialiased():
    image = np.random.default_rng(0).integers(0, 256, (40, 32, 3), dtype=np.uint8)
    assert (images.centre_fit(image, 28) == image[6:34, 2:30]).all()
    # A ramp of 256 columns: the centred 7/8 of it, averaged over 8 columns each.
    ramp = np.broadcast_to(np.arange(256, dtype=np.uint8)[None, :, None], (256, 256, 1))
    smaller = images.centre_fit(ramp, 28)
    expected = 16 + (np.arange(28) + 0.5) * 8 - 0.5
    assert np.abs(smaller[..., 0] - expected).max() <= 1
    # Stripes of one column each turn to their mean, where sampling would alias.
    stripes = np.broadcast_to(
        np.array([0, 200] * 128, np.uint8)[None, :, None], (256, 256, 1)
    )
    assert np.abs(images.centre_fit(stripes, 28).astype(int) - 100).max() <= 2


def test_channels():
    grey_image = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1)
    colour = images.to_channels(grey_image, 3)
    assert (colour == grey_image).all() and colour.shape == (1, 16, 16, 3)
    assert (images.to_channels(colour, 1) == grey_image).all()
    pixels = np.random.default_rng(0).integers(0, 256, (2, 50, 50, 3), dtype=np.uint8)
    luminance = images.to_channels(pixels, 1)[..., 0]
    exact = pixels @ np.array([0.299, 0.587, 0.114])
    assert np.abs(luminance - exact).max() <= 0.51
    for image, converted in zip(pixels, luminance, strict=True):
        assert (np.asarray(Image.fromarray(image).convert("L")) == converted).all()
    source = load_images(channels=3, image_size=10).train
    assert (
        read_all(source)["image"].shape
        == (1293, 10, 10, 3)
        == (1293, *source.image_shape)
    )


def test_random_windows_have_the_area_and_aspect_of_the_inception_crop():
    height, width = 300, 400
    windows = np.array([random_window(height, width, (i,)) for i in range(4000)])
    left, top, right, bottom = windows.T
    w, h = right - left, bottom - top
    assert left.min() == 0 == top.min()
    assert right.max() == width and bottom.max() == height
    area = w * h / (height * width)
    assert 0.078 < area.min() < 0.09 and area.max() > 0.9
    assert 0.73 < (w / h).min() < 0.77 and 1.3 < (w / h).max() < 1.36
    # Small windows always fit: their areas and log aspects are uniform.
    small = area < 0.5
    assert abs(area[small].mean() - 0.29) < 0.01
    assert abs(np.log(w / h)[small].mean()) < 0.02
    place = (left / np.maximum(width - w, 1))[small]
    assert (
        np.abs(np.quantile(place, [0.25, 0.5, 0.75]) - [0.25, 0.5, 0.75]).max() < 0.04
    )


def test_windows_of_extreme_images_are_centred():
    assert random_window(1000, 6, (1,)) == (0, 496, 6, 504)
    assert random_window(6, 1000, (1,)) == (496, 0, 504, 6)


def test_memory_that_is_used_again_changes_nothing(monkeypatch: pytest.MonkeyPatch):
    """Files of several sizes one after the other, as each is in memory of its own."""
    draws, files = np.random.default_rng(0), []
    for height, width in ((40, 60), (90, 70), (20, 30), (41, 61), (16, 40)):
        pixels = draws.integers(0, 256, (height, width, 3), np.uint8)
        files.append(open_file(encode(pixels, "JPEG"), 10**6))
    fit = Fit(window=WINDOW)

    def fit_all() -> list[np.ndarray]:
        centres = [images.fit_file(file, 16, 3) for file in files]
        pixels = np.zeros((len(files), 32, 32, 3), np.uint8)
        for file, one in zip(files, pixels, strict=True):
            canvas.cut(file, canvas.draw(file, (0, 1), fit, 16), 16, fit, one)
        return [*centres, pixels]

    fitted = fit_all()
    monkeypatch.setattr(images, "MAX_SCRATCH_BYTES", 0)
    assert all(map(np.array_equal, fitted, fit_all()))
