"""Random windows of files of many sizes: cut on the host, resized by the step."""

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from jaxtrain import keys, own
from jaxtrain.config import AugmentConfig, DataConfig, ParallelConfig
from jaxtrain.config.recipe import load_config
from jaxtrain.data import images, loader, sources
from jaxtrain.data.batch import BOX
from jaxtrain.data.datasets import make_datasets, should_cache
from jaxtrain.data.defects import Unreadable
from jaxtrain.data.files import StoredFile, open_file
from jaxtrain.data.fit import Fit
from jaxtrain.data.preprocess import make_preprocess
from jaxtrain.data.random_windows import Window, random_window
from jaxtrain.data.replacements import fill_in
from jaxtrain.errors import UserError
from jaxtrain.parallel.mesh import make_mesh
from jaxtrain.trainer.setup import build_setup
from tests.helpers.images import encode, load_images, on_canvases, read_all
from tests.helpers.numerics import FP64, TOLERANCE
from tests.helpers.pooled import POOLED
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import read_lines, read_summary

SIZE = 16
# Height and width: smaller than the canvas of 32, larger, much larger.
SHAPES = ((20, 24), (31, 32), (40, 30), (45, 61), (130, 97), (150, 260))
CROP = AugmentConfig(random_resized_crop=True, crop_scale=(0.2, 1.0))
FIELDS: dict[str, Any] = {
    "source": "folder:photos",
    "image_size": SIZE,
    "batch_size": 12,
    "validation_fraction": 0.0,
    "test_fraction": 0.1,
    "augment": CROP,
}


def photograph(height: int, width: int, seed: int) -> np.ndarray:
    """Return a smooth picture with some noise, uint8 (height, width, 3)."""
    draws = np.random.default_rng(seed)
    few = Image.fromarray(draws.integers(0, 256, (5, 5, 3), np.uint8))
    smooth = np.asarray(few.resize((width, height), Image.Resampling.BICUBIC))
    noise = draws.integers(-20, 21, (height, width, 3))
    return np.clip(smooth + noise, 0, 255).astype(np.uint8)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of JPEGs and PNGs, two classes of 24 images each."""
    for i in range(48):
        kind = ("JPEG", "PNG")[i % 2]
        path = tmp_path / "photos" / "ab"[i // 2 % 2] / f"{i:02d}.{kind.lower()}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(photograph(*SHAPES[i % 6], i), kind))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def in_the_step(batch: dict[str, Any], splits: Any, size: int = 0) -> np.ndarray:
    """Return what the step makes of the images of a batch, float32 0..255."""
    num = len(batch["image"])
    batch = {**batch, "index": np.arange(num)}
    step = compiled_step(size or splits.size, splits.fit)
    prepared = step({}, batch, keys.root_key(0), jnp.int32(0))
    assert BOX not in prepared
    return np.asarray(prepared["image"]).round()


@functools.cache
def compiled_step(size: int, fit: Fit) -> Any:
    constants = (0.0,) * 3, (1 / 255,) * 3, np.float32
    return jax.jit(make_preprocess(*constants, CROP, size=size, fit=fit))


def resized(pixels: np.ndarray, box: Any, size: int, method: str) -> np.ndarray:
    """Resize a box by Pillow: columns first, then rows, as the step does."""
    left, top, right, bottom = map(float, box)
    kernel, picture = images.FILTERS[method], Image.fromarray(pixels)
    narrow = picture.resize((size, len(pixels)), kernel, (left, 0, right, len(pixels)))
    return np.asarray(narrow.resize((size, size), kernel, (0, top, size, bottom)))


def seeds_of(num: int) -> np.ndarray:
    return np.column_stack([np.full(num, 3), np.full(num, 7), np.arange(num)])


@pytest.mark.parametrize("method", ["bilinear", "bicubic"])
def test_windows_are_those_that_pillow_cuts_and_resizes(here: Path, method: str):
    splits = load_images(**FIELDS, interpolation=method)
    train = splits.train
    assert train.canvas_shape
    assert splits.input_shape == train.image_shape == (SIZE, SIZE, 3)
    num = len(train)
    read = read_all(train, crop_seeds=seeds_of(num))
    assert read["image"].shape == (num, 32, 32, 3) and read[BOX].shape == (num, 4)
    found, kinds, ties = in_the_step(read, splits), set(), []
    stored, _ = train.store.read(train.indices)
    for i, (one, seed) in enumerate(zip(stored, seeds_of(num).tolist(), strict=True)):
        assert isinstance(one, StoredFile)
        file = open_file(one.data, 10**6)
        box = random_window(file.height, file.width, seed, Window((0.2, 1.0)))
        # Decoded at a part of the size, a window begins within a pixel.
        pixels, box = images.decode_box(file, SIZE, 3, box)
        left, top = int(box[0]), int(box[1])
        right, bottom = np.ceil(box[2:]).astype(int)
        inside = np.subtract(box, [left, top, left, top])
        window = pixels[top:bottom, left:right]
        expected = resized(window, inside, SIZE, method)
        off = np.abs(found[i] - expected)
        if max(window.shape) > 32:
            kinds.add("on the host")
            assert read[BOX][i].tolist() == [0, 0, SIZE, SIZE]
            picture = Image.fromarray(window)
            whole = picture.resize((SIZE, SIZE), images.FILTERS[method], tuple(inside))
            # The step changes nothing of it, to the last bit.
            assert (found[i] == np.asarray(whole)).all()
        else:
            kinds.add("by the step")
            kinds.add("within a pixel" if inside[0] % 1 else "at a pixel")
            np.testing.assert_array_equal(read[BOX][i], inside.astype(np.float32))
            assert off.max() <= 1
            ties.append(off.mean())
    # Values between two levels, as in `tests/data/test_resize.py`.
    assert np.mean(ties) < 0.06
    assert kinds == {"on the host", "by the step", "within a pixel", "at a pixel"}


def test_what_lies_beyond_a_window_counts_for_nothing(here: Path):
    splits = load_images(**FIELDS)
    read = read_all(splits.train, crop_seeds=seeds_of(len(splits.train)))
    shape = read["image"].shape
    noise = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    for size in (SIZE, 8):
        seen = []
        for beyond in (np.zeros_like(noise), np.full_like(noise, 255), noise):
            image = beyond.copy()
            for one, window in zip(image, on_canvases(read), strict=True):
                one[: len(window), : window.shape[1]] = window
            seen.append(in_the_step({**read, "image": image}, splits, size))
        assert seen[0].shape == (len(noise), size, size, 3)
        assert all(np.array_equal(one, seen[0]) for one in seen[1:])


def test_unreadable_images_are_black_and_replaced(here: Path):
    for name in ("a/00.jpeg", "b/06.jpeg", "b/47.png"):
        path = here / "photos" / name
        path.write_bytes(path.read_bytes()[:90])
    source = load_images(**FIELDS).train
    indices, unreadable = np.arange(len(source)), list[Unreadable]()
    read = read_all(source, crop_seeds=seeds_of(len(source)), unreadable=unreadable)
    assert {Path(bad.name).name for bad in unreadable} <= {
        "00.jpeg",
        "06.jpeg",
        "47.png",
    }
    bad = [one.index for one in unreadable]
    assert len(bad) > 1
    good = np.setdiff1d(indices, bad)
    for i in bad:
        window = on_canvases(read)[i]
        assert window.shape == (SIZE, SIZE, 3) and not window.any()
    before = [window.copy() for window in on_canvases(read)]
    filled = fill_in(source, read, indices, unreadable, seeds_of(len(source)))
    after = on_canvases(filled)
    assert all(np.array_equal(before[i], after[i]) for i in good)
    assert (filled["target"] == read["target"]).all()
    for i in bad:
        # A window of another image, by the seed of this place.
        seeds = np.tile(seeds_of(len(source))[i], (len(good), 1))
        others = on_canvases(source.read(good, seeds))
        assert any(np.array_equal(after[i], one) for one in others)


def batches(**changes: Any) -> list[dict[str, Any]]:
    config = DataConfig(**{**FIELDS, **changes})
    splits, mesh = sources.load(config, 0), make_mesh(ParallelConfig())
    assert not should_cache(config, splits)
    train, _, _ = make_datasets(splits, mesh, False, 0.0)
    order = loader.make_order(config, train.source, 5)
    return list(loader.train_batches(config, train, mesh, order, 2, 5))


def test_they_cannot_be_kept_on_the_device(here: Path):
    with pytest.raises(UserError, match="differ in size"):
        load_images(**FIELDS, cache="device")


RUN = recipe(
    data='DataConfig(source="folder:photos", image_size=16, batch_size=8, '
    "test_fraction=0.2, validation_fraction=0.2, progressive_sizes=(8, 16), "
    "augment=AugmentConfig(random_resized_crop=True, horizontal_flip=True))",
    model=f'CustomModelConfig(name="{POOLED}")',
    train="TrainConfig(epochs=2, eval_every_steps=4, accumulate_steps=2, "
    "steps_per_call=2)",
    checkpoint="CheckpointConfig(every_steps=6)",
    logging="LoggingConfig(every_steps=2, tensorboard=False)",
)

own.allow(["tests.helpers.pooled:Pooled"])


@pytest.mark.slow
@pytest.mark.plugins
def test_shapes_of_a_step_are_those_of_its_batches(here: Path):
    """What `scale` compiles and times, and what `data --preview` shows."""
    from jaxtrain.plugins.plan.measure import abstract_inputs, create_inputs
    from jaxtrain.plugins.report.preview import draw_preview

    write_recipe(here / "run.py", RUN)
    setup = build_setup(load_config(here / "run.py"))
    _, shapes = abstract_inputs(setup)
    (batch, *_) = batches(batch_size=8)
    for name, array in batch.items():
        assert shapes[name].shape == (1, *array.shape)
        assert shapes[name].dtype == array.dtype
    _, _, _, noise = create_inputs(setup)
    assert np.asarray(noise[BOX]).tolist() == [[[0, 0, 2 * SIZE, 2 * SIZE]] * 8]
    picture = np.asarray(draw_preview(setup, num_steps=1, columns=4))
    assert picture.std() > 0


# Words of a run, its devices.
OTHERS = {
    "workers": ("--data.workers 2", 1),
    "stages": ("--parallel.pipeline-stages 2", 8),
}
# A pipeline takes images of one size, and one step a call.
ONE_SIZE = (
    RUN.replace("progressive_sizes=(8, 16), ", "")
    .replace(", steps_per_call=2", "")
    .replace("batch_size=8", "batch_size=16")
)


@pytest.mark.slow
@pytest.mark.plugins
def test_on_any_devices_and_by_workers_a_run_is_the_same(here: Path):
    from jaxtrain.plugins.packed.writer import pack

    write_recipe(here / "run.py", ONE_SIZE)
    pack(DataConfig(source="folder:photos"), here / "packed")

    def losses(name: str, words: str, devices: int) -> list[float]:
        length = "--train.epochs 4 --logging.every-steps 1"
        command = f"--config run.py --workdir {name} --precision fp64 {length} {words}"
        env = {**FP64, "JAX_NUM_CPU_DEVICES": str(devices)}
        Cli(here).done(*command.split(), **env)
        assert read_summary(here / name)["num_devices"] == devices
        train = [line["loss"] for line in read_lines(here / name, "train")]
        return [*train, read_summary(here / name)["eval"]["loss"]]

    expected = losses("one", "", 1)
    assert len(expected) > 4
    for name, (words, devices) in OTHERS.items():
        found = losses(name, words, devices)
        np.testing.assert_allclose(found, expected, rtol=TOLERANCE)
