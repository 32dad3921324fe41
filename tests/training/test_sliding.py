"""Whole images in windows that overlap, against a plain loop."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.data.window_grid import WindowGrid, starts
from jaxtrain.training.views import sliding_windows
from tests.helpers.command import float64
from tests.helpers.rows import each_row


@each_row(
    ("sides", "expected"),
    [
        ((16, 16), [0]),
        ((17, 16), [0, 1]),
        ((40, 16), [0, 12, 24]),
        ((41, 16), [0, 12, 24, 25]),
        ((3, 1), [0, 1, 2]),
    ],
)
def test_windows_cover_a_side(sides: Any, expected: list[int]):
    whole, part = sides
    found = starts(whole, part)
    assert found == expected
    # As MMSegmentation numbers them.
    stride = max(1, round(part * 0.75))
    assert len(found) == max(whole - part + stride - 1, 0) // stride + 1
    gaps = np.diff(found)
    assert found[-1] == whole - part and (gaps <= stride).all()


def test_windows_are_chosen_of_all_images_and_places_in_turn():
    grid = WindowGrid((40, 28), (16, 16))
    assert grid.corners.tolist() == [[y, x] for y in (0, 12, 24) for x in (0, 12)]
    image, window = grid.choose(4, 100)
    assert sorted(zip(image, window, strict=True)) == [
        (i, j) for i in range(4) for j in range(6)
    ]
    # A window of each image comes before another one of any, and neighbours differ.
    assert image.reshape(6, 4).tolist() == [[0, 1, 2, 3]] * 6
    assert all(len({*row}) == 4 for row in window.reshape(6, 4).tolist())
    assert [x.tolist() for x in grid.choose(4, 3)] == [[0, 1, 2], [0, 1, 2]]
    images = np.random.default_rng(0).normal(size=(4, 40, 28, 3))
    found = jax.jit(grid.cut)(images, np.array([0, 5, 2, 3]))
    for one, part, (y, x) in zip(
        images, found, ((0, 0), (24, 12), (12, 0), (12, 12)), strict=True
    ):
        np.testing.assert_allclose(part, one[y : y + 16, x : x + 16], rtol=1e-6)


def test_an_image_of_the_size_of_a_window_is_the_only_one():
    grid, images = WindowGrid((16, 8), (16, 8)), np.ones((2, 16, 8, 1))
    assert len(grid) == 1 and grid.cut(images, np.zeros(2, int)) is images
    assert [x.tolist() for x in grid.choose(3, 9)] == [[0, 1, 2], [0, 0, 0]]


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def plain_loop(function: Any, image: np.ndarray, size: int):
    """Return the mean probabilities of windows, one after the other, of one image."""
    height, width, _ = image.shape
    stride = round(size * 0.75)
    total, counts = 0.0, np.zeros((height, width, 1))
    for i in range(math.ceil((height - size) / stride) + 1):
        for j in range(math.ceil((width - size) / stride) + 1):
            y, x = min(i * stride, height - size), min(j * stride, width - size)
            window = image[y : y + size, x : x + size]
            p = softmax(function(window[None])[0])
            whole = np.zeros((height, width, p.shape[-1]))
            whole[y : y + size, x : x + size] = p
            total = total + whole
            counts[y : y + size, x : x + size] += 1
    return total / counts


def net(windows: Any) -> Any:
    """A net that sees where in a window a pixel is: so it matters which windows do."""
    rows = jnp.arange(windows.shape[1])[:, None, None]
    ramp = jnp.cumsum(windows, 2) - 0.3 * rows
    return jnp.concatenate([windows, jnp.sin(3 * ramp), ramp / 7], -1)


def test_probabilities_are_averaged_as_in_a_plain_loop():
    images = np.random.default_rng(0).normal(size=(3, 21, 30, 1))
    with float64(True):
        found = np.asarray(jax.jit(lambda x: sliding_windows(net, x, (8, 8)))(images))
        expected = np.stack([plain_loop(net, x, 8) for x in images])
    # Sums of a few logarithms and exponentials in float64.
    np.testing.assert_allclose(np.exp(found), expected, rtol=1e-12)
    np.testing.assert_allclose(np.exp(found).sum(-1), 1, rtol=1e-12)


def test_an_image_of_one_window_keeps_its_logits():
    images = np.random.default_rng(0).normal(size=(2, 8, 8, 1)).astype(np.float32)
    found = sliding_windows(net, jnp.asarray(images), (8, 8))
    np.testing.assert_array_equal(found, net(jnp.asarray(images)))


def test_a_window_that_is_sure_leaves_no_number_infinite():
    """Of a probability that is 0 in float32 the logarithm is not."""

    def sure(windows: jax.Array) -> jax.Array:
        return jnp.concatenate([200 + windows, -200 - windows], -1)

    def of_other(image: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = sliding_windows(sure, image, (8, 8))
        return found[..., 1].sum(), found

    both = jax.jit(jax.value_and_grad(of_other, has_aux=True))
    (_, found), grads = both(jnp.zeros((1, 12, 12, 1)))
    np.testing.assert_allclose(found[..., 0], 0, atol=1e-6)
    np.testing.assert_allclose(found[..., 1], -400, rtol=1e-6)
    np.testing.assert_allclose(grads, -2, rtol=1e-5)
