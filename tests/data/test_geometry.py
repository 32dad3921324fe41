"""Targets follow their images: arrays and points through each augmentation."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrain import own
from jaxtrain.config import AugmentConfig
from jaxtrain.data.augment import AUGMENTATIONS, check_augmentations
from jaxtrain.data.augment.geometry import Flip, ResizedBox
from jaxtrain.data.fit import Fit
from jaxtrain.data.preprocess import make_preprocess
from jaxtrain.data.random_windows import Window
from jaxtrain.errors import UserError
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import read_lines

HEIGHT, WIDTH, NUM = 20, 24, 32
GRAIN = 8  # grey levels from one pixel to the next
WINDOWS = Fit(window=Window((0.3, 0.9)))
# Name -> the augmentations, the size that images get, and how; None: an evaluation.
GEOMETRIC: dict[str, tuple[AugmentConfig | None, int | None, Fit]] = {
    "crop_padding": (AugmentConfig(crop_padding=3), None, Fit()),
    "horizontal_flip": (AugmentConfig(horizontal_flip=True), None, Fit()),
    "vertical_flip": (AugmentConfig(vertical_flip=True), None, Fit()),
    "alternating_flip": (AugmentConfig(alternating_flip=True), None, Fit()),
    "rotation": (AugmentConfig(rotation=60.0), None, Fit()),
    "randaugment": (
        AugmentConfig(randaugment=1, randaugment_magnitude=25),
        None,
        Fit(),
    ),
    "trivialaugment": (AugmentConfig(trivialaugment=True), None, Fit()),
    "random_resized_crop": (
        AugmentConfig(random_resized_crop=True, crop_scale=(0.3, 0.9)),
        12,
        WINDOWS,
    ),
    "whole": (AugmentConfig(), 12, Fit()),
    "larger": (AugmentConfig(), 30, Fit(interpolation="bicubic")),
    "centre": (None, 12, Fit(centre_part=0.875)),
}
OPERATIONS = ("randaugment", "trivialaugment")
RESIZED = ("random_resized_crop", "whole", "larger", "centre")


def coordinates(height: int, width: int) -> np.ndarray:
    """Return (x, y) of the centre of each pixel, (H, W, 2)."""
    rows, columns = np.mgrid[:height, :width].astype(np.float32) + 0.5
    return np.stack([columns, rows], -1)


PLACES = coordinates(HEIGHT, WIDTH)
DISC = (np.linalg.norm(PLACES - (14.0, 8.0), axis=-1) < 5).astype(np.uint8) * 9
IMAGE = np.concatenate([(PLACES - 0.5) * GRAIN, DISC[..., None] / 9 * 255], -1)
CORNERS = np.array([[0, 0], [WIDTH, 0], [0, HEIGHT], [WIDTH, HEIGHT], [7, 3.5]])


def follow(target, geometry):
    return {
        "nearest": geometry.pixels(target["nearest"]),
        "linear": geometry.pixels(target["linear"], "linear"),
        "mask": geometry.pixels(target["mask"]),
        "inside": geometry.pixels(target["inside"]),
        "points": geometry.points(target["points"]),
    }


def prepared(name: str, images: np.ndarray, target: Any, follow: Any) -> Any:
    """Return images in 0..255 and targets as a step, or an evaluation, gets them."""
    config, size, fit = GEOMETRIC[name]
    channels = images.shape[-1]
    prepare = make_preprocess(
        *((0.0,) * channels, (1.0,) * channels, np.float32),
        config,
        follow,
        size=size,
        fit=fit,
    )
    index = jnp.arange(len(images))
    batch = {"image": images, "target": target, "index": index, "epoch": index}
    found = jax.jit(prepare)({}, batch, jax.random.key(0), np.int32(3))
    return jax.tree.map(np.asarray, {**found, "image": found["image"] * 255})


def example(name: str) -> Any:
    """Return many draws of images whose pixels hold their own coordinates."""
    target = {
        "nearest": PLACES,
        "linear": PLACES,
        "mask": DISC,
        "inside": np.ones((HEIGHT, WIDTH), bool),
        "points": CORNERS,
    }
    many = jax.tree.map(lambda x: np.repeat(x[None], NUM, 0), target)
    return prepared(name, np.repeat(IMAGE.astype(np.uint8)[None], NUM, 0), many, follow)


def stored_places(points: np.ndarray, height: int, width: int) -> np.ndarray:
    """Return where each pixel of the result comes from, by where the corners went."""
    known = np.concatenate([points, np.ones((len(points), 1))], -1)
    back, rest, *_ = np.linalg.lstsq(known, CORNERS, rcond=None)
    assert rest.max() < 1e-4  # the points have gone where one affine map takes them
    return (
        np.concatenate([coordinates(height, width), np.ones((height, width, 1))], -1)
        @ back
    )


def test_the_table_has_every_augmentation_with_a_geometry():
    geometric = {name for name, row in AUGMENTATIONS.items() if row.geometry}
    before = {"random_resized_crop", "alternating_flip"}
    assert geometric | before | {"whole", "larger", "centre"} == set(GEOMETRIC)


@pytest.mark.parametrize("name", GEOMETRIC)
def test_pixels_and_points_go_where_the_image_goes(name: str):
    found = example(name)
    height, width = found["image"].shape[1:3]
    # Sampled at pixels, a triangle keeps a ramp only nearly.
    ramp = 0.1 if name in RESIZED else 0.005
    moved, off = 0, []
    for image, target in zip(found["image"], split(found["target"]), strict=True):
        places = stored_places(target["points"], height, width)
        inside = target["inside"]
        # Where the points say, within half a pixel of the stored image.
        error = np.abs(target["nearest"] - places)[inside]
        assert error.max() <= 0.5 + 1e-3
        deep = (
            inside & (places > 3).all(-1) & (places < (WIDTH - 3, HEIGHT - 3)).all(-1)
        )
        deep[:2] = deep[-2:] = deep[:, :2] = deep[:, -2:] = False
        assert np.abs(target["linear"] - places)[deep].max(initial=0) < ramp
        outside = (places < -1e-3) | (places > np.array([WIDTH, HEIGHT]) + 1e-3)
        assert (inside == ~outside.any(-1))[distinct(places)].all()
        same = np.array_equal(target["mask"], DISC) and name not in RESIZED
        moved += not same
        if name in OPERATIONS and same:  # it may be one of colours
            continue
        # What the image shows is what its target says.
        shown = image[..., :2] / GRAIN + 0.5
        exact = 0.5 if name in RESIZED else 1e-4
        assert np.abs(shown - target["nearest"])[inside].max() <= 0.5 + exact
        assert set(np.unique(target["mask"])) <= {0, 9}
        disc, sure = image[..., 2] > 127, (image[..., 2] < 1) | (image[..., 2] > 254)
        if name not in RESIZED:
            assert sure.all()
        assert (disc == (target["mask"] == 9))[sure].all()
        off.append(np.mean(disc != (target["mask"] == 9)))
    assert moved > NUM / 8 and np.mean(off) < 0.03


def split(target: Any) -> list[Any]:
    return [jax.tree.map(lambda x, i=i: x[i], target) for i in range(NUM)]


def distinct(places: np.ndarray) -> np.ndarray:
    """Whether a place is clearly within the stored image, or clearly not."""
    size = np.array([WIDTH, HEIGHT])
    border = np.minimum(np.abs(places), np.abs(places - size))
    return np.all(border > 0.01, axis=-1)


def test_arrays_keep_their_dims_and_dtypes():
    flip = Flip(jnp.array(True), (2, 3), dim=1)
    box: Any = (0.0, 0.0, 3.0, 2.0)
    for dtype in (np.uint8, np.float16, bool):
        for shape in ((2, 3), (2, 3, 2, 2)):
            array = (np.arange(np.prod(shape)).reshape(shape) % 3).astype(dtype)
            found = flip.pixels(jnp.asarray(array), "linear")
            assert found.dtype == dtype and (found == array[:, ::-1]).all()
            larger = ResizedBox(box, 6).pixels(jnp.asarray(array), "linear")
            assert larger.dtype == dtype and larger.shape == (6, 6, *shape[2:])
    with pytest.raises(UserError, match="'cubic': expected nearest or linear"):
        flip.pixels(jnp.zeros((2, 3)), "cubic")  # pyright: ignore[reportArgumentType]


HELPER = "tests.helpers.key_points"


def test_targets_follow_an_augmentation_of_ones_own(monkeypatch: pytest.MonkeyPatch):
    with own.allowing_nothing():
        own.allow(f"{HELPER}:{name}" for name in ("mirror", "flagged", "wrong"))
        config = AugmentConfig(own=(f"{HELPER}:mirror",))
        monkeypatch.setitem(GEOMETRIC, "own", (config, None, Fit()))
        test_pixels_and_points_go_where_the_image_goes("own")
        for name, message in (
            ("flagged", "expected a class or a function, got True"),
            ("wrong", "`moves` returned (20, 24), expected"),
        ):
            config = AugmentConfig(own=(f"{HELPER}:{name}",))
            (problem,) = check_augmentations(config, (20, 24, 1))
            assert message in problem.text


KEY_POINTS = recipe(
    task='CustomConfig(name="tests.helpers.key_points:KeyPoint")',
    data='DataConfig(source="tests.helpers.key_points:dots", batch_size=16, '
    "image_size=16, cache='device', augment=AugmentConfig(random_resized_crop=True, "
    "crop_scale=(0.5, 1.0), horizontal_flip=True, rotation=20, crop_padding=1))",
    train="TrainConfig(steps=4, eval_every_steps=2)",
    checkpoint="CheckpointConfig(every_steps=2)",
    logging="LoggingConfig(every_steps=1, tensorboard=False)",
)


@pytest.mark.slow
def test_a_task_of_key_points_trains(cli: Cli, tmp_path: Path):
    config = write_recipe(tmp_path / "recipe.py", KEY_POINTS)
    cli.done("--config", config, "--workdir", "run")
    losses = [line["loss"] for line in read_lines(tmp_path / "run")]
    assert len(losses) >= 6 and np.isfinite(losses).all() and min(losses) > 0
