"""Augmentations of colour and geometry against Pillow, and what is drawn of them."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from scipy.ndimage import gaussian_filter1d

from jaxtrain.config import AugmentConfig
from jaxtrain.data.augment import affine, augment, blur, colour, operations, simple
from jaxtrain.data.augment.apply import make_keys
from jaxtrain.data.augment.mix import draw_beta
from jaxtrain.data.augment.operations import NAMES, Drawn
from tests.helpers.pillow import OPERATIONS, map_by_torchvision

HEIGHT, WIDTH = 24, 31
FILL = jnp.array([50.0, 100.0, 200.0])


def picture(seed: int = 0, channels: int = 3, height: int = HEIGHT, width: int = WIDTH):
    """Return noise under a ramp: many values, and channels that do not use them all."""
    rng = np.random.default_rng(seed)
    shape = (height, width, channels)
    ramp = np.linspace(0.1, 0.9, width)[:, None]
    return (rng.integers(20, 256, shape) * ramp).astype(np.uint8)


def to_pillow(image: np.ndarray) -> Image.Image:
    return Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)


def from_pillow(image: Image.Image) -> np.ndarray:
    array = np.asarray(image)
    return array[..., None] if array.ndim == 2 else array


def off(ours: Any, theirs: Any) -> np.ndarray:
    return np.abs(np.asarray(ours).astype(int) - np.asarray(theirs).astype(int))


@pytest.mark.parametrize(
    ("space", "channels"),
    [
        ("rand", 3),
        ("wide", 3),
        pytest.param("mix", 3, marks=pytest.mark.slow),
        pytest.param("rand", 1, marks=pytest.mark.slow),
        pytest.param("mix", 1, marks=pytest.mark.slow),
    ],
)
def test_each_operation_is_pillows_at_each_level(space: str, channels: int):
    """To the last bit, but for stretched values that Pillow rounds the other way."""
    magnitudes = {
        "rand": operations.rand_levels(HEIGHT, WIDTH),
        "wide": operations.wide_levels(),
        "mix": operations.mix_levels(HEIGHT, WIDTH, 10),
    }[space]
    tables = operations.make_tables(magnitudes, HEIGHT, WIDTH)
    image = picture(channels=channels)
    levels = [0, 3, 9] if space == "mix" else [0, 9, 17, 30]
    draws = [
        (operation, level, negative)
        for operation in range(len(NAMES))
        for level in levels
        for negative in (0, 1)
    ]
    each = jax.jit(
        jax.vmap(lambda d: operations.apply(jnp.asarray(image), Drawn(*d), tables))
    )
    found = each(jnp.array(draws, jnp.int32))
    for (operation, level, negative), ours in zip(draws, found, strict=True):
        name = NAMES[operation]
        magnitude = float(magnitudes[name][level]) if name in magnitudes else 0.0
        if negative and name in operations.SIGNED:
            magnitude = -magnitude
        theirs = from_pillow(OPERATIONS[name](to_pillow(image), magnitude))
        difference = off(ours, theirs)
        if name == "autocontrast":
            assert difference.max() <= 1 and difference.mean() < 0.01
        else:
            assert difference.max() == 0, (name, level)


def test_magnitudes_are_those_that_the_papers_and_torchvision_name():
    rand, wide = operations.rand_levels(224, 224), operations.wide_levels()
    mix = operations.mix_levels(224, 224, 3)
    at = {name: values[9] for name, values in rand.items()}
    assert math.isclose(at["rotate"], 9.0) and math.isclose(at["shear_x"], 0.09)
    assert math.isclose(at["translate_x"], 224 * 150 / 331 * 0.3)
    assert math.isclose(at["contrast"], 0.27) and math.isclose(at["solarize"], 178.5)
    assert rand["posterize"].tolist()[:6] == [8, 8, 8, 8, 7, 7]
    assert rand["posterize"][-1] == 4 and wide["posterize"][-1] == 2
    assert wide["translate_y"][-1] == 32 and wide["rotate"][-1] == 135
    assert [len(values) for values in mix.values()] == [3] * len(mix)
    assert mix["posterize"].tolist() == [4, 4, 3]
    assert math.isclose(mix["translate_x"][1], 224 / 3 / 9)


@pytest.mark.parametrize("degrees", [7.5, -31.0, 90.0, 180.0])
def test_maps_are_those_of_pillow_and_torchvision(degrees: float):
    image = picture()
    turned = affine.fixed(np.array(affine.rotate(degrees, HEIGHT, WIDTH)))
    ours = affine.nearest(jnp.asarray(image), jnp.asarray(turned))
    theirs = to_pillow(image).transform(
        (WIDTH, HEIGHT),
        Image.Transform.AFFINE,
        map_by_torchvision((WIDTH / 2, HEIGHT / 2), angle=-degrees),
    )
    # Torchvision's own matrix is not rounded: at a right angle pixels lie between two.
    if degrees % 90:
        assert off(ours, theirs).max() == 0
        assert off(ours, to_pillow(image).rotate(degrees)).max() == 0
    shapes: list[tuple[affine.Map, dict[str, Any]]] = [
        (affine.shear_x(0.21), {"shear": (math.degrees(math.atan(0.21)), 0.0)}),
        (affine.shear_y(-0.3), {"shear": (0.0, math.degrees(math.atan(-0.3)))}),
        (affine.translate(3.9, -2.2), {"translate": (3, -2)}),
    ]
    for ours, args in shapes:
        np.testing.assert_allclose(ours, map_by_torchvision((0, 0), **args), atol=1e-12)


def test_interpolated_maps_are_pillows():
    image = picture()
    for a_map in (affine.rotate(21, HEIGHT, WIDTH), affine.shear_x(0.3)):
        coefficients = jnp.asarray(affine.fixed(np.array(a_map)))
        ours = affine.bilinear(jnp.asarray(image), coefficients)
        theirs = to_pillow(image).transform(
            (WIDTH, HEIGHT), Image.Transform.AFFINE, a_map, Image.Resampling.BILINEAR
        )
        # Places are known to 1/65536 pixels, which may cut a value one level lower.
        assert off(ours, theirs).max() <= 1 and off(ours, theirs).mean() < 0.05


def test_hue_goes_through_pillows_hsv():
    image = picture(height=60, width=60)
    for shift in (0, 13, 200):
        hue, saturation, value = to_pillow(image).convert("HSV").split()
        moved = Image.fromarray(np.asarray(hue) + np.uint8(shift))
        theirs = Image.merge("HSV", (moved, saturation, value)).convert("RGB")
        ours = colour.shift_hue(jnp.asarray(image), jnp.int32(shift))
        # A hue that is a whole number of its 255 levels may be cut to either.
        assert (off(ours, theirs) > 0).mean() < 0.01 and off(ours, theirs).max() < 8


@pytest.mark.slow
def test_smoothing_and_tables_at_their_limits():
    for image in (picture(height=2), picture(height=3, width=3), picture() * 0 + 9):
        ours = colour.smooth(jnp.asarray(image))
        assert off(ours, to_pillow(image).filter(ImageFilter.SMOOTH)).max() == 0
        histogram = colour.counts(jnp.asarray(image))
        assert (np.asarray(histogram).sum(1) == image[..., 0].size).all()
        for make, theirs in (
            (colour.autocontrast, ImageOps.autocontrast),
            (colour.equalize, ImageOps.equalize),
        ):
            ours = colour.look_up(jnp.asarray(image), make(histogram))
            assert off(ours, theirs(to_pillow(image))).max() <= 1


def keys_of(num: int, step: Any = 0) -> Any:
    return make_keys(jax.random.key(0), step, jnp.arange(num))


def with_(fields: Any) -> AugmentConfig:
    return AugmentConfig(**fields)


@functools.partial(jax.jit, static_argnames="config")
def run(config: AugmentConfig, images, step=0) -> Any:
    keys = keys_of(len(images), step)
    batch = {"image": images, "target": {"mask": images[..., :1]}}

    def follow(target, geometry):
        return {"mask": geometry.pixels(target["mask"])}

    return augment(batch, keys, config, FILL, follow)


def several(num: int, **size: int) -> jax.Array:
    return jnp.asarray(np.repeat(picture(**size)[None], num, axis=0))


def test_rotation_is_pillows_by_an_angle_drawn_evenly():
    images, degrees = several(400), 30.0
    found = np.asarray(run(AugmentConfig(rotation=degrees), images)["image"])
    keys = keys_of(400)
    keys = jax.vmap(lambda key: jax.random.fold_in(key, 5))(keys)
    angles = jax.vmap(
        lambda key: jax.random.uniform(key, (), jnp.float32, -degrees, degrees)
    )(keys)
    for image, angle in zip(found[:20], angles.tolist(), strict=False):
        theirs = from_pillow(to_pillow(picture()).rotate(angle))
        # An angle of 24 bits lays few middles beyond the edge of a pixel.
        assert (off(image, theirs) > 0).mean() < 0.005
    quantiles = np.quantile(np.asarray(angles), [0.25, 0.5, 0.75])
    np.testing.assert_allclose(quantiles, [-15, 0, 15], atol=6)


def test_operations_are_drawn_evenly_with_both_signs():
    tables = operations.make_tables(operations.wide_levels(), 8, 8)
    keys = keys_of(4000)
    drawn = jax.vmap(lambda key: operations.draw(key, tables))(keys)
    for values, number in zip(drawn, (14, 31, 2), strict=True):
        counts = np.bincount(np.asarray(values), minlength=number)
        assert len(counts) == number
        expected = 4000 / number
        assert np.abs(counts - expected).max() < 6 * np.sqrt(expected)


@pytest.mark.slow
def test_randaugment_is_its_operations_in_a_row():
    images = several(12)
    config = AugmentConfig(randaugment=2, randaugment_magnitude=15)
    found = np.asarray(run(config, images)["image"])
    keys = keys_of(12)
    magnitudes = operations.rand_levels(HEIGHT, WIDTH)
    tables = operations.make_tables(magnitudes, HEIGHT, WIDTH)
    for image, key in zip(found, keys, strict=True):
        key, expected = jax.random.fold_in(key, 7), to_pillow(picture())
        for number in range(2):
            drawn = operations.draw(jax.random.fold_in(key, number), tables, 15)
            name = NAMES[int(drawn.operation)]
            magnitude = magnitudes[name][15] if name in magnitudes else 0.0
            if drawn.negative and name in operations.SIGNED:
                magnitude = -magnitude
            expected = OPERATIONS[name](expected, float(magnitude))
        assert (off(image, from_pillow(expected)) > 1).mean() < 0.01


@pytest.mark.parametrize(
    ("number", "field", "kind"),
    [
        pytest.param(0, "brightness", ImageEnhance.Brightness, marks=pytest.mark.slow),
        (1, "contrast", ImageEnhance.Contrast),
        pytest.param(2, "saturation", ImageEnhance.Color, marks=pytest.mark.slow),
    ],
)
def test_jitter_of_one_kind_is_pillows_enhancement(number: int, field: str, kind: Any):
    image = picture()
    found = run(with_({field: 0.8}), several(4))["image"]
    keys = keys_of(4)
    for ours, key in zip(found, keys, strict=True):
        _, key, _ = jax.random.split(jax.random.fold_in(key, 6), 3)
        draw = jax.random.uniform(key, (3,), jnp.float32)[number]
        factor = float(np.float32(0.2) + np.float32(1.6) * draw)
        theirs = kind(to_pillow(image)).enhance(factor)
        assert off(ours, theirs).max() <= 1
        assert (off(ours, theirs) > 0).mean() < 0.01


@pytest.mark.slow
def test_hue_moves_evenly_and_grey_stays():
    images = jnp.asarray(np.broadcast_to([[[200, 40, 40]]], (600, 1, 1, 3)), jnp.uint8)
    found = np.asarray(run(AugmentConfig(hue=0.25), images)["image"])
    hues = np.array([from_pillow(to_pillow(x).convert("HSV"))[0, 0, 0] for x in found])
    turns = (hues / 255 + 0.5) % 1 - 0.5
    np.testing.assert_allclose(
        np.quantile(turns, [0, 0.25, 0.5, 0.75, 1]),
        [-0.25, -0.125, 0, 0.125, 0.25],
        atol=0.03,
    )
    grey = jnp.asarray(np.full((4, 2, 2, 3), 77, np.uint8))
    assert (run(AugmentConfig(hue=0.5), grey)["image"] == 77).all()


@pytest.mark.parametrize(
    "value", ["mean", pytest.param("noise", marks=pytest.mark.slow)]
)
def test_erasing_paints_rectangles_of_the_area_and_aspect(
    monkeypatch: pytest.MonkeyPatch, value: str
):
    images = jnp.zeros((3000, 40, 50, 3), jnp.uint8)
    # All of these fit.
    monkeypatch.setattr(simple, "ERASING_SCALE", (0.1, 0.3))
    monkeypatch.setattr(simple, "ERASING_RATIO", (0.5, 2.0))
    config = with_({"erasing": 0.6, "erasing_value": value})
    found = np.asarray(run(config, images)["image"])
    # A pixel of noise is black in all channels once in 2**24.
    painted = (found != 0).any(-1)
    some = painted.any((1, 2))
    assert abs(some.mean() - 0.6) < 6 * np.sqrt(0.24 / 3000)
    rows, columns = painted.any(2)[some], painted.any(1)[some]
    h, w = rows.sum(1), columns.sum(1)
    assert (painted[some].sum((1, 2)) == h * w).all(), "one rectangle"
    area, aspect = h * w / 2000, np.log(h / w)
    assert 0.08 < area.min() < 0.11 and 0.28 < area.max() < 0.32
    assert abs(area.mean() - 0.2) < 0.01 and abs(aspect.mean()) < 0.05
    place = rows.argmax(1) / np.maximum(40 - h, 1)
    np.testing.assert_allclose(
        np.quantile(place, [0.25, 0.5, 0.75]), [0.25, 0.5, 0.75], atol=0.06
    )
    if value == "mean":
        assert (found[painted] == [50, 100, 200]).all()
    else:
        # Evenly from 0 to 255: the deviation is 73.9.
        assert abs(found[painted].mean() - 127.5) < 1
        assert abs(found[painted].std() - 73.9) < 1


@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (0.2, 0.2), (2.0, 4.0)])
def test_beta_draws_have_their_moments(a: float, b: float):
    keys = jax.random.split(jax.random.key(0), 20_000)
    drawn = np.asarray(jax.vmap(lambda key: draw_beta(key, a, b))(keys), float)
    mean, variance = a / (a + b), a * b / ((a + b) ** 2 * (a + b + 1))
    assert drawn.min() >= 0 and drawn.max() <= 1
    assert abs(drawn.mean() - mean) < 6 * np.sqrt(variance / 20_000)
    assert abs(drawn.var() - variance) < 0.05 * variance


@pytest.mark.slow
def test_augmix_lies_between_an_image_and_its_chains():
    """Of one colour, moved and stretched nowhere: the mixture is that colour."""
    images = several(64)
    found = np.asarray(run(AugmentConfig(augmix=3), images)["image"], float)
    distance = np.abs(found - np.asarray(images, float)).mean((1, 2, 3))
    assert (distance > 0.2).mean() > 0.9 and distance.max() < 80
    # Weights sum to 1, but for what is cut to a level.
    white = jnp.full((16, 8, 8, 1), 255, jnp.uint8)
    gentle = run(AugmentConfig(augmix=1), white)["image"]
    untouched = np.asarray(gentle[:, 4, 4, 0])
    assert np.isin(untouched, [254, 255]).mean() > 0.2


def test_blur_is_a_gaussian_that_is_cut_off_and_mirrored():
    """As SciPy's, with the same reach; a side of 40 has a kernel of 5 pixels."""
    image = picture(height=40, width=24).astype(np.float32)
    reach = [blur.radius(size) for size in image.shape[:2]]
    assert reach == [2, 1] and [blur.radius(n) for n in (224, 8)] == [11, 1]
    expected = image.astype(np.float64)
    for axis in (0, 1):
        expected = gaussian_filter1d(
            expected, 1.3, axis=axis, mode="mirror", radius=reach[axis]
        )
    found = blur.gaussian(jnp.asarray(image), jnp.float32(1.3))
    # Sums of 5 products of at most 255 in float32.
    np.testing.assert_allclose(found, expected, atol=2e-4)


@pytest.mark.slow
def test_views_are_changed_with_their_probabilities():
    """Of 600, with six deviations of a share."""
    images, num = several(600, height=8, width=8), 600
    grey = from_pillow(to_pillow(np.asarray(images[0])).convert("L"))
    for fields, share in (
        ({"grayscale": 0.2}, 0.2),
        ({"blur": 0.5, "blur_sigma": (1.0, 2.0)}, 0.5),
        ({"brightness": 0.4, "jitter_probability": 0.8}, 0.8),
    ):
        found = np.asarray(run(with_(fields), images)["image"])
        changed = (found != np.asarray(images)).any((1, 2, 3))
        assert abs(changed.mean() - share) < 6 * math.sqrt(share * (1 - share) / num)
        if "grayscale" in fields:
            assert (found[changed] == grey).all()
        # What is not changed is drawn anew in the next step.
        other = np.asarray(run(with_(fields), images, step=1)["image"])
        assert ((other != np.asarray(images)).any((1, 2, 3)) != changed).any()
