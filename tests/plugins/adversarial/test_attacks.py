"""Attacks and views, where their results are known."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrain.plugins.adversarial.attacks import Ball, Norm, Pgd
from jaxtrain.training import views

RNG = np.random.default_rng(2)
IMAGES = RNG.uniform(0, 1, (6, 5, 4, 3)).astype(np.float32)
SLOPE = RNG.normal(size=(5, 4, 3)).astype(np.float32)
KEYS = jax.random.split(jax.random.key(0), 6)


def rising(images: jax.Array) -> jax.Array:
    """Return losses that rise along `SLOPE` everywhere."""
    return jnp.exp((images * SLOPE).sum((1, 2, 3)) / 10)


def attacked(
    name: str, ball: Ball, steps: int, loss_of: Any, images: Any, keys: Any = KEYS
) -> jax.Array:
    """Return what FGSM, from the images, or PGD, from random ones, makes of images."""
    if name == "fgsm":
        return Pgd(ball=ball, steps=1, step_size=ball.epsilon)(loss_of, images, images)
    return Pgd(ball=ball, steps=steps)(loss_of, images, ball.draw(images, keys))


def change(
    name: str, ball: Ball, steps: int, images: np.ndarray = IMAGES
) -> np.ndarray:
    run = jax.jit(lambda x: attacked(name, ball, steps, rising, x))
    changed = run(images)
    assert changed.min() >= 0 and changed.max() <= 1
    return np.asarray(changed) - images


def lengths(x: np.ndarray) -> np.ndarray:
    return np.sqrt(np.square(x).sum((1, 2, 3)))


@pytest.mark.parametrize(
    ("name", "steps"),
    [("fgsm", 1), pytest.param("pgd", 3, marks=pytest.mark.slow)],
)
def test_by_the_largest_value_all_pixels_move(name: str, steps: int):
    """The loss is highest in the corner that the signs of its slope lead to."""
    found = change(name, Ball(epsilon=0.05), steps)
    expected = np.clip(IMAGES + 0.05 * np.sign(SLOPE), 0, 1) - IMAGES
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize(("name", "steps"), [("fgsm", 1), ("pgd", 4)])
def test_by_the_length_they_move_along_the_gradient(name: str, steps: int):
    """In the middle of 0..1, where nothing is cut off."""
    middle = np.full_like(IMAGES, 0.5)
    found = change(name, Ball(epsilon=0.2, norm="l2"), steps, middle)
    along = (found * SLOPE).sum((1, 2, 3)) / np.sqrt(np.square(SLOPE).sum())
    # The random start of PGD fades with each step, and does not vanish.
    least = 0.2 - 1e-6 if name == "fgsm" else 0.17
    assert np.all(along > least)
    np.testing.assert_allclose(lengths(found), 0.2, rtol=1e-5)


@pytest.mark.parametrize("norm", [pytest.param("linf", marks=pytest.mark.slow), "l2"])
def test_the_change_stays_in_the_ball_and_the_start_is_random(
    norm: Norm,
):
    def flat(images: jax.Array) -> jax.Array:
        return 0 * images.sum((1, 2, 3))

    ball, middle = Ball(epsilon=0.1, norm=norm), np.full_like(IMAGES, 0.5)
    run = jax.jit(lambda images, keys: attacked("pgd", ball, 1, flat, images, keys))
    found = np.asarray(run(middle, KEYS)) - middle
    size = lengths(found) if norm == "l2" else np.abs(found).max((1, 2, 3))
    # Of 60 values evenly drawn, or of the radius to the power of 60, nearly all.
    assert np.all(size <= 0.1 + 1e-6) and np.all(size > 0.08)
    assert len(np.unique(size)) == len(IMAGES)
    again = run(middle[3:], KEYS[3:])
    np.testing.assert_array_equal(np.asarray(again) - middle[3:], found[3:])


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_a_model_in_float16_is_not_robust_by_rounding(norm: Norm):
    def loss_of(images: jax.Array) -> jax.Array:
        # Of 1e-9 a float16 keeps nothing.
        return 1e-9 * images.astype(jnp.float16).astype(jnp.float32).sum((1, 2, 3))

    images = jnp.full((1, 4, 4, 1), 0.5)
    moved = attacked("fgsm", Ball(epsilon=0.1, norm=norm), 1, loss_of, images)
    expected = 0.6 if norm == "linf" else 0.5 + 0.1 / 4
    np.testing.assert_allclose(moved, expected, rtol=1e-6)


def test_crops_are_those_of_torchvision():
    """Corners, and the centre at round((H - h) / 2), written as slices."""
    pixels = jnp.asarray(RNG.integers(0, 256, (2, 9, 8, 1)))
    found = views.crops(pixels, (6, 5))
    tl, tr, bl, br = pixels[:, :6, :5], pixels[:, :6, 3:], pixels[:, 3:, :5], 0
    br, centre = pixels[:, 3:, 3:], pixels[:, 2:8, 2:7]
    np.testing.assert_array_equal(found, jnp.stack([tl, tr, bl, br, centre]))


@pytest.mark.parametrize(("name", "num"), [("flip", 2), ("ten_crop", 10)])
def test_the_probabilities_of_views_are_averaged(name: str, num: int):
    pixels = jnp.asarray(RNG.integers(0, 256, (3, 9, 9, 1)).astype(np.float32))
    size = (9, 9) if name == "flip" else (6, 6)
    kernel = jnp.asarray(RNG.normal(size=(*size, 4)) / 100)
    seen = []

    def apply(pixels: jax.Array) -> jax.Array:
        seen.append(np.asarray(pixels))
        return jnp.einsum("bhwc,hwk->bk", pixels, kernel)

    found = np.asarray(views.VIEWS[name](apply, pixels, size))
    assert len(seen) == num == len({view.tobytes() for view in seen})
    each = [np.exp(jax.nn.log_softmax(apply(jnp.asarray(view)))) for view in seen[:num]]
    np.testing.assert_allclose(np.exp(found), np.mean(each, 0), rtol=1e-4)
    if name == "ten_crop":
        for view, mirrored in zip(seen[:5], seen[5:10], strict=True):
            np.testing.assert_array_equal(view, mirrored[:, :, ::-1])
