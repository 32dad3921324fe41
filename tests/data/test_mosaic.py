"""Mosaics of four images: their places, boxes and masks, and what is refused."""

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrain.config import AugmentConfig, Config, DataConfig, TrainConfig
from jaxtrain.data.augment import mosaic
from jaxtrain.data.augment.mosaic import draw_tiles, mosaics, neighbours
from jaxtrain.data.pixel_classes import IGNORED
from jaxtrain.data.target_changes import Mosaic
from jaxtrain.errors import UserError
from jaxtrain.trainer.periods import make_timetable
from tests.helpers.masked import mask_recipe, write_masks
from tests.helpers.processes import Cli
from tests.helpers.recipes import write_recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import read_lines

HEIGHT, WIDTH, BATCH, BOXES = 12, 16, 8, 3
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(1, 256, (BATCH, HEIGHT, WIDTH, 3), dtype=np.uint8)
MASKS = RNG.integers(0, 5, (BATCH, HEIGHT, WIDTH), dtype=np.uint8)
CORNERS = np.sort(RNG.uniform(0, 1, (BATCH, BOXES, 2, 2)), 2)
TARGET = {
    "boxes": (CORNERS * (WIDTH, HEIGHT)).reshape(BATCH, BOXES, 4).astype(np.float32),
    "classes": np.arange(BATCH * BOXES, dtype=np.int32).reshape(BATCH, BOXES),
    "crowd": np.arange(BATCH * BOXES).reshape(BATCH, BOXES) % 7 == 0,
    "size": np.full((BATCH, 2), (HEIGHT, WIDTH), np.float32),
}
FILL = np.array([7.0, 8.2, 9.0])
ALL = AugmentConfig(mosaic=1.0)


@functools.partial(jax.jit, static_argnames="config")
def made(config: AugmentConfig, seeds: Any) -> Any:
    """Return the mosaics of the batch, and where their images lie: for each seed."""
    from jaxtrain.plugins.detection.box_geometry import mosaic_boxes

    def join(targets: Any, change: Mosaic) -> Any:
        tiles = change.tiles
        boxes, masks, number = zip(*targets, strict=True)
        where = [(tile.corner, tile.scale, tile.covers()) for tile in tiles]
        masks = [t.pixels(m, border=IGNORED) for m, t in zip(masks, tiles, strict=True)]
        return mosaic_boxes(boxes, tiles), masks, list(number), where

    def one(seed: Any) -> Any:
        target = (TARGET, MASKS, np.arange(BATCH))
        batch = {"image": IMAGES, "target": jax.tree.map(jnp.asarray, target)}
        each = jax.random.split(jax.random.key(seed), BATCH)
        batch["image"] = jnp.asarray(batch["image"])
        found = mosaics(batch, each, config, jnp.asarray(FILL), join)
        return found["image"], found["target"]

    return jax.vmap(one)(seeds)


@pytest.fixture(scope="module")
def drawn() -> Any:
    return jax.device_get(made(ALL, jnp.arange(40)))


def test_an_example_is_with_the_next_three_of_its_four(drawn: Any):
    number = drawn[1][2]
    assert [x[0].tolist() for x in number] == [
        [0, 1, 2, 3, 4, 5, 6, 7],
        [1, 2, 3, 0, 5, 6, 7, 4],
        [2, 3, 0, 1, 6, 7, 4, 5],
        [3, 0, 1, 2, 7, 4, 5, 6],
    ]
    # Of examples that are there twice: none is with itself.
    twice = jnp.arange(8) // 2
    assert neighbours(twice, 1, 2).tolist() == [1, 1, 2, 2, 3, 3, 0, 0]


def places(drawn: Any) -> Any:
    """Yield (seed, example, of the four) with its image, corner, scale and cover."""
    _, _, numbers, where = drawn[1]
    for of_four, (corner, scale, covers) in enumerate(where):
        for place in np.ndindex(scale.shape):
            number = numbers[of_four][place]
            yield (*place, of_four), number, corner[place], scale[place], covers[place]


def sources(corner: float, scale: float, size: int) -> np.ndarray:
    """Return where in an image the middles of the pixels of a mosaic are."""
    return (np.arange(size) + 0.5 - np.float64(corner)) / scale


def means(corner: float, scale: float, size: int) -> np.ndarray:
    """Return Pillow's weights of the pixels of an image, (size, size), in float64."""
    middles = sources(corner, scale, size)[:, None]
    away = np.abs(np.arange(size) + 0.5 - middles) * min(1, scale)
    weights = np.maximum(0, 1 - away)
    return weights / np.maximum(weights.sum(1, keepdims=True), 1e-9)


def test_pixels_are_those_of_the_images_in_their_places(drawn: Any):
    found = drawn[0]
    expected = np.broadcast_to(np.round(FILL), found.shape).copy()
    for (seed, example, _), number, (x, y), scale, covers in places(drawn):
        image = IMAGES[number].astype(np.float64)
        narrow = np.einsum("ow,hwc->hoc", means(x, scale, WIDTH), image)
        whole = np.einsum("oh,hwc->owc", means(y, scale, HEIGHT), narrow)
        expected[seed, example][covers] = whole[covers]
        rows, columns = sources(y, scale, HEIGHT), sources(x, scale, WIDTH)
        inside = [(s >= 0) & (s < n) for s, n in ((rows, HEIGHT), (columns, WIDTH))]
        assert (covers == (inside[0][:, None] & inside[1])).mean() > 0.9
    # Rounded after each of the two passes: by half a level each.
    assert np.abs(found - expected).max() <= 1.01


def test_masks_are_taken_below_the_middles(drawn: Any):
    for (seed, example, n), number, (x, y), scale, covers in places(drawn):
        rows = np.float32(np.arange(HEIGHT) + 0.5 - y) / np.float32(scale)
        columns = np.float32(np.arange(WIDTH) + 0.5 - x) / np.float32(scale)
        rows = np.clip(np.floor(rows), 0, HEIGHT - 1).astype(int)
        columns = np.clip(np.floor(columns), 0, WIDTH - 1).astype(int)
        taken = MASKS[number][rows][:, columns]
        expected = np.where(covers, taken, IGNORED)
        differ = drawn[1][1][n][seed, example] != expected
        # A middle on an edge may fall on either side of it.
        assert differ.mean() < 0.02 or scale == 1


@pytest.mark.plugins
def test_boxes_go_along_are_cut_and_dropped(drawn: Any):
    from jaxtrain.plugins.detection.box_geometry import MIN_SHARE

    target, dropped, cut = drawn[1][0], 0, 0
    assert target["boxes"].shape == (40, BATCH, 4 * BOXES, 4)
    for (seed, example, n), number, corner, scale, _ in places(drawn):
        there = slice(n * BOXES, (n + 1) * BOXES)
        found = {name: x[seed, example] for name, x in target.items()}
        boxes = TARGET["boxes"][number].astype(np.float64)
        moved = np.tile(corner, 2) + scale * boxes
        clipped = np.clip(moved, 0, (WIDTH, HEIGHT, WIDTH, HEIGHT))
        whole, left = (np.prod(b[:, 2:] - b[:, :2], 1) for b in (moved, clipped))
        stays = (left >= 4) & ((left >= MIN_SHARE * whole) | TARGET["crowd"][number])
        clear = (np.abs(left - 4) > 1e-3) & (np.abs(left - MIN_SHARE * whole) > 1e-3)
        kinds = np.where(stays, TARGET["classes"][number], -1)
        assert (found["classes"][there] == kinds)[clear].all()
        stays &= clear
        np.testing.assert_allclose(
            found["boxes"][there][stays], clipped[stays], atol=1e-4
        )
        assert (found["crowd"][there] == TARGET["crowd"][number])[stays].all()
        dropped += (~stays).sum()
        cut += (stays & (left < whole - 1)).sum()
    assert dropped > 100 and cut > 100
    assert (target["size"] == (HEIGHT, WIDTH)).all()


def test_points_and_scales_are_uniform():
    def one(seed: Any) -> Any:
        tiles = draw_tiles(jax.random.key(seed), (HEIGHT, WIDTH), ALL)
        covers = sum(tile.covers().astype(jnp.int32) for tile in tiles)
        return tiles[-1].corner, tiles[0].scale, covers

    point, scale, covers = jax.device_get(jax.jit(jax.vmap(one))(jnp.arange(4000)))
    assert scale.min() >= 0.5 and scale.max() <= 1.5
    # Uniform on [a, b]: the mean, and the deviation (b - a) / sqrt(12).
    assert abs(scale.mean() - 1) < 6 / np.sqrt(12 * 4000)
    assert abs(scale.std() - 1 / np.sqrt(12)) < 0.01
    size = np.array([WIDTH, HEIGHT])
    away = (point - size / 2) / (scale[:, None] * size)
    # Rounded to whole pixels.
    assert np.abs(away).max() <= 0.5 + 1 / HEIGHT
    assert np.abs(away.mean(0)).max() < 6 / np.sqrt(12 * 4000)
    assert np.abs(away.std(0) - 1 / np.sqrt(12)).max() < 0.01
    # No pixel is of two images; of images of their size and larger all are of one.
    assert covers.max() == 1
    assert (covers[scale >= 1] == 1).all() and (covers[scale < 0.8] == 0).any()


@pytest.mark.slow
def test_images_of_their_own_size_stay_exact_as_do_those_in_no_mosaic(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(mosaic, "MOSAIC_SCALE", (1.0, 1.0))
    config = AugmentConfig(mosaic=0.3)
    drawn = jax.device_get(made(config, jnp.arange(40)))
    found, (target, masks, _, where) = drawn
    for (seed, example, n), number, (x, y), scale, covers in places(drawn):
        assert scale == 1 and x == round(x) and y == round(y)
        at = np.argwhere(covers)
        taken = tuple((at - np.array([y, x], int)).T)
        assert (found[seed, example][covers] == IMAGES[number][taken]).all()
        assert (masks[n][seed, example][covers] == MASKS[number][taken]).all()
    whole = where[0][2].all((2, 3))
    # One mosaic in 200 shows its first image alone.
    assert abs(whole.mean() - 0.7) < 6 * np.sqrt(0.21 / 320)
    for seed, example in np.argwhere(whole):
        ours = {name: x[seed, example] for name, x in target.items()}
        boxes = TARGET["boxes"][example]
        stays = np.prod(boxes[:, 2:] - boxes[:, :2], 1) >= 4
        kinds = np.where(stays, TARGET["classes"][example], -1)
        assert ours["classes"].tolist() == [*kinds, *[-1] * 3 * BOXES]
        boxes = np.where(stays[:, None], boxes, 0)
        np.testing.assert_array_equal(ours["boxes"][:BOXES], boxes)


def config(augment: dict[str, Any], **train: Any) -> Config:
    data = DataConfig(batch_size=16, augment=AugmentConfig(**augment))
    return Config(data=data, train=TrainConfig(**{"epochs": 5, **train}))


def test_the_last_epochs_are_without():
    def closes(epochs: float) -> int | None:
        asked = config({"mosaic": 1.0, "close_mosaic": epochs})
        times = make_timetable(asked, 160, has_validation=True)
        assert times.total_steps == 50
        step = times.close_mosaic_step
        assert step is None or times.next_boundary(step - 1) == step
        return step

    assert closes(0) is None
    assert [closes(n) for n in (2, 0.5, 0.001)] == [30, 45, 49]
    with pytest.raises(UserError, match="the run has 5 epochs, so no epoch has"):
        closes(5)


def test_a_call_may_be_as_long_as_what_is_left_without():
    asked = config(
        {"mosaic": 1.0, "close_mosaic": 4.8}, steps_per_call=8, eval_every_epochs=5
    )
    assert make_timetable(asked, 160, has_validation=True).close_mosaic_step == 2


@each_row(
    ("augment", "message"),
    [
        ({"mosaic": 1.5}, "mosaic = 1.5"),
        ({"close_mosaic": 1.0}, "has no effect without data.augment.mosaic"),
    ],
)
def test_what_cannot_be_is_refused(augment: dict[str, Any], message: str):
    with pytest.raises(UserError) as error:
        config(augment)
    assert message in str(error.value)


@pytest.mark.plugins
@pytest.mark.slow
@each_row(
    "words",
    [
        "--data.augment.cutmix 1.0 --data.repeats 2 --data.cache stream",
        "--data.progressive-sizes 8 16 --data.augment.close-mosaic 0.5",
    ],
)
def test_masks_in_mosaics_are_learnt_with_other_options(tmp_path: Path, words: str):
    write_masks(tmp_path / "set", {"train": 48, "test": 8})
    write_recipe(tmp_path / "recipe.py", mask_recipe())
    more = "--data.augment.mosaic 1.0 --train.steps 6 --workdir run"
    Cli(tmp_path).done(*f"--config recipe.py {more} {words}".split())
    losses = [line["loss"] for line in read_lines(tmp_path / "run", "train")]
    assert np.isfinite(losses).all()


@pytest.mark.plugins
@pytest.mark.slow
@each_row(
    ("words", "message"),
    [
        ("--data.batch-size 6", "as groups of 4 examples are mixed"),
        ("--data.augment.mixup 0.2", "a mixed pixel has two"),
    ],
)
def test_masks_in_mosaics_are_refused_with(tmp_path: Path, words: str, message: str):
    write_masks(tmp_path / "set", {"train": 48, "test": 8})
    write_recipe(tmp_path / "recipe.py", mask_recipe())
    more = "--data.augment.mosaic 1.0 --train.steps 6 --workdir run"
    result = Cli(tmp_path)(*f"--config recipe.py {more} {words}".split())
    assert result.code == 2, result.stdout
    assert message in result.stderr
