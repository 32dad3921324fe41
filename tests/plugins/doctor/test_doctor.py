"""The check of a data set: every planted defect is found, and nothing else."""

import dataclasses
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from PIL import Image
from scipy.sparse.csgraph import connected_components

from jaxtrain.config import Config, DataConfig
from jaxtrain.data.files import ImageFile, StoredFile
from jaxtrain.data.image_source import Source
from jaxtrain.data.image_statistics import statistics
from jaxtrain.data.sources import load
from jaxtrain.data.stores import ArrayStore
from jaxtrain.plugins.doctor import near, scan
from jaxtrain.plugins.doctor.check import check
from jaxtrain.plugins.doctor.look import hash_pixels, look_at
from jaxtrain.trainer import data_checks
from tests.helpers.images import encode
from tests.helpers.needs import fashion_mnist
from tests.helpers.processes import Cli
from tests.helpers.rows import each_row
from tests.helpers.zoo import (
    ODD_NAMES,
    Zoo,
    found,
    make_zoo,
    read_report,
    save,
    texture,
)


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Zoo:
    return make_zoo(tmp_path_factory.mktemp("zoo") / "set")


# --- the whole command ---------------------------------------------------------------


def test_every_planted_defect_is_found_by_name_and_nothing_else(
    zoo: Zoo, cli: Cli, write_config: Callable[..., Path]
):
    result = cli("data", "--check", "--config", write_config(zoo.config()))
    assert result.code == 2
    assert "5 images that cannot be read; 5 of 51 in train" in result.stderr
    report = read_report(cli.directory / "data_report")
    assert found(report) == zoo.planted
    assert not report["ok"]
    assert report["splits"]["train"] == {"num_examples": 51, "num_unreadable": 5}
    assert report["classes"] == [
        {"name": "cat", "train": 27, "test": 6},
        {"name": "dog", "train": 19, "test": 8},
    ]
    assert report["sizes"]["max"] == [48, 30000]
    reasons = {
        Path(example["name"]).name: example["detail"]
        for finding in report["findings"]
        for example in finding["examples"]
        if finding["kind"] == "unreadable"
    }
    assert reasons["empty.png"] == "the file is empty"
    assert "not an image of a supported format" in reasons["text.jpg"]
    # No name obeyed by the terminal, and none of rich's markup.
    assert "\x1b" not in result.stdout + result.stderr


def test_a_clean_list_is_clean(zoo: Zoo, cli: Cli, write_config: Callable[..., Path]):
    words = ["--config", write_config(zoo.config()), "--write-clean", "clean"]
    assert cli("data", "--check", *words).code == 2
    text = (cli.directory / "clean").read_bytes()
    # One name has a line break.
    names = {Path(name.decode(errors="surrogateescape")) for name in text.split(b"\0")}
    names -= {Path()}
    everything = {
        path.relative_to(zoo.root) for path in zoo.root.rglob("*") if path.is_file()
    }
    bad = {Path(name).relative_to(zoo.root) for name in zoo.planted["unreadable"]}
    again = {
        *(Path("train/dog/c.png"), Path("train/cat/c_again.png")),  # Which is right?
        Path("train/dog/a_again.png"),
        Path("train/dog/b.png"),  # The test split stays as it is.
    }
    assert everything - names == bad | again
    assert Path("train/cat", ODD_NAMES[2]) in names
    # A run on the list alone has none of that left.
    config = write_config(zoo.config(include=str(cli.directory / "clean")))
    assert cli("data", "--check", "--config", config, "--out", "again").code == 0
    kinds = set(found(read_report(cli.directory / "again")))
    assert not [k for k in kinds if k.startswith(("unreadable", "duplicates"))]
    assert "near_leak" in kinds


def test_digits_are_good(cli: Cli):
    result = cli("data", "--check", "--source", "digits")
    assert result.code == 0
    report = read_report(cli.directory / "data_report")
    assert report["findings"] == [] and report["num_examples"] == 1797
    mean, std = statistics(load(DataConfig(source="digits"), seed=0).train)
    np.testing.assert_allclose(report["mean"], mean, atol=1e-12)
    np.testing.assert_allclose(report["std"], std, atol=1e-12)


# --- the real Fashion-MNIST ----------------------------------------------------------


@pytest.mark.slow
def test_every_planted_defect_among_real_images_is_found(
    tmp_path: Path, cli: Cli, write_config: Callable[..., Path]
):
    images, labels = fashion_mnist("t10k")

    def picture(number: int) -> np.ndarray:
        return np.repeat(images[number + 2000][..., None], 3, axis=-1)

    zoo = make_zoo(tmp_path / "real", num=0, picture=picture)
    for label in range(10):
        for i, number in enumerate(np.flatnonzero(labels == label)[:32]):
            split = "test" if i % 4 == 3 else "train"
            data = encode(np.repeat(images[number][..., None], 3, axis=-1))
            zoo.add(None, f"{split}/class{label}/{i}.png", data)
    fields: dict[str, Any] = {"image_size": 28, "max_bad_fraction": 0.1}
    cli.done("data", "--check", "--config", write_config(zoo.config(**fields)))
    report = found(read_report(cli.directory / "data_report"))
    for kind, names in zoo.planted.items():
        assert report[kind] >= names, kind
    for kind in ("unreadable", "extension", "animated", "rotated", "alpha", "modes"):
        assert report[kind] == zoo.planted[kind], kind


# --- what a run would not survive ----------------------------------------------------


def check_arrays(
    tmp_path: Path,
    images: np.ndarray,
    labels: list[int] | np.ndarray,
    test: int,
    facts: dict[str, Any] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Check arrays of which the last `test` are the test split."""
    target = labels if isinstance(labels, np.ndarray) else np.array(labels, np.int32)
    store = ArrayStore(images, target, facts or {"num_classes": 3})
    splits = np.split(np.arange(len(images)), [len(images) - test])
    opened = store, {"train": [splits[0]], "test": [splits[1]]}
    fields = {"source": "digits", "validation_fraction": 0.0, **fields}
    judge = partial(data_checks.judge, with_recipe=False)
    with mock.patch("jaxtrain.data.opening.open_store", return_value=opened):
        config = Config(data=DataConfig(**fields))
        check(config, tmp_path, sized=True, judge=judge)
    return read_report(tmp_path)


def many(num: int, channels: int = 3) -> np.ndarray:
    return np.stack([texture(i, 24)[..., :channels] for i in range(num)])


@each_row("channels", [1, 2, 3, 5])
def test_arrays_of_any_number_of_channels(tmp_path: Path, channels: int):
    images = np.concatenate([many(39), many(39)[..., ::-1]], axis=-1)[..., :channels]
    report = check_arrays(tmp_path, images, [0, 1, 2] * 13, test=3)
    assert report["findings"] == []
    train = images[:36] / 255
    np.testing.assert_allclose(report["mean"], train.mean((0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(report["std"], train.std((0, 1, 2)), rtol=1e-9)


# --- what is looked at ---------------------------------------------------------------

# Of a set whose images differ in size from those of the run: any size is good.
DOT = ArrayStore(np.zeros((1, 1, 1, 3), np.uint8), np.zeros(1, np.int32), {})
SOURCE = Source(DOT, np.zeros(1, np.int64), (32, 32, 3), max_pixels=2**26)


def test_pixels_are_hashed_whatever_the_file():
    picture = Image.fromarray(texture(1))
    files = [StoredFile("x", save(picture, f)) for f in ("PNG", "BMP", "TIFF")]
    turned = texture(1).transpose(1, 0, 2)
    for number in (hash_pixels, lambda one, source: look_at(one, source).signature):
        numbers = {number(one, SOURCE) for one in [*files, texture(1)]}
        assert len(numbers) == 1 and number(turned, SOURCE) not in numbers


def test_images_of_one_signature_are_told_apart_by_their_pixels():
    base = np.random.default_rng(0).integers(100, 102, (96, 96, 3), np.uint8)
    # Neighbours that change places leave the histogram and the small picture.
    swapped, place = base.copy(), int(np.argmax(np.diff(base[0, :, 0].astype(int)) > 0))
    swapped[0, place : place + 2, 0] = 101, 100
    pictures = [base, *(texture(i, 96) for i in range(5)), swapped, base]
    files = [StoredFile(f"{i}.png", encode(one)) for i, one in enumerate(pictures)]
    first, *_, other, _ = (look_at(file, SOURCE).signature for file in files)
    assert first == other and not np.array_equal(base, swapped)
    store = mock.Mock(facts={}, image_shape=(None, None, 3))
    store.read = lambda rows: ([files[row] for row in rows], np.zeros(len(rows)))
    source = dataclasses.replace(SOURCE, store=store)
    decode = ImageFile.picture
    with mock.patch.object(
        ImageFile, "picture", autospec=True, side_effect=decode
    ) as decoded:
        seen = scan.scan(source, {"train": np.arange(len(files))}, "pictures")
    assert [rows.tolist() for rows in near.equal_ones(seen.pixel_hash)] == [[0, 7]]
    # Those of one signature once more, all others once.
    assert decoded.call_count == len(files) + 3


# --- pairs ---------------------------------------------------------------------------


def test_near_images_are_those_that_comparing_all_with_all_finds():
    generator = np.random.default_rng(0)
    base = np.stack(
        [np.asarray(Image.fromarray(texture(i, 32)).convert("L")) for i in range(60)]
    )
    noise = generator.normal(0, 6, (6, *base.shape))
    small = np.clip(base + noise, 0, 255).astype(np.uint8).reshape(-1, 32, 32)
    hashes, prints = near.perceptual_hashes(small), near.fingerprints(small)
    bits = np.bitwise_count(hashes[:, None] ^ hashes)
    flat = prints.reshape(len(prints), -1)
    correlation = np.corrcoef(flat.astype(float))
    one, other = np.triu_indices(len(prints), 1)
    alike = near._look_alike(flat, np.stack([one, other], axis=1)[::5])
    assert (alike == (correlation >= near.MIN_CORRELATION)[one, other][::5]).all()
    close = (bits <= near.MAX_BITS) & (correlation >= near.MIN_CORRELATION)
    # Neither all nor none of the copies of a picture are so near.
    assert 50 < np.triu(close, 1).sum() < 60 * 15
    groups = [group.tolist() for group in near.find_near(hashes, prints)]
    assert groups == connected(close) and len({len(group) for group in groups}) > 2


def connected(joined: np.ndarray) -> list[list[int]]:
    """Group numbers by a matrix (n, n) of which are joined, with SciPy."""
    num, group = connected_components(joined, directed=False)
    members = [np.flatnonzero(group == number).tolist() for number in range(num)]
    return sorted(some for some in members if len(some) > 1)


@pytest.mark.slow
def test_memory_of_a_long_film_is_that_of_its_frames():
    num = 2000
    noise = np.random.default_rng(0).normal(0, 0.3, (num, 32, 32))
    frame = np.asarray(Image.fromarray(texture(0, 32)).convert("L"))
    small = np.clip(frame + noise, 0, 255).astype(np.uint8)
    hashes, prints = near.perceptual_hashes(small), near.fingerprints(small)
    with mock.patch.object(near, "_CHUNK", 512):
        tracemalloc.start()
        try:
            (group,) = near.find_near(hashes, prints)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert group.tolist() == list(range(num))
    # So many pairs are compared at a time, as five arrays of float32; all pairs, two
    # numbers of 8 bytes each, would take 32 MB.
    compared = 512 * near.PRINT**2 * 4
    assert most < 5 * compared + 1000 * num, most


def test_a_photograph_saved_again_is_near():
    looks = []
    for i in range(20):
        picture = Image.fromarray(texture(i, 96))
        half = picture.resize((48, 48))
        for image in (picture, half):
            data = save(image, "JPEG", quality=75)
            looks.append(look_at(StoredFile("x", data), SOURCE))
    small = np.stack([look.small for look in looks])
    groups = near.find_near(near.perceptual_hashes(small), near.fingerprints(small))
    assert [group.tolist() for group in groups] == [
        [2 * i, 2 * i + 1] for i in range(20)
    ]


# --- options -------------------------------------------------------------------------


@each_row(
    ("words", "told"),
    [
        ([], "--prepare"),
        (["--check", "--prepare", "tfds:mnist"], "give one of"),
        (["--prepare", "tfds:mnist", "--out", "x"], "--out x has no effect"),
        (["--check", "--source", "digits", "--config", "{digits}"], "with --config"),
        (["--check", "--config", "{digits}", "--data-dir", "x"], "--data.data-dir"),
        (["--check", "--source", "digits", "--write-clean", "x"], "has no image files"),
        (["--check", "--workdir", "nowhere"], "give the directory of a run"),
        (["--check", "--source", "digits", "--out", "/dev/null/x"], "/dev/null/x"),
    ],
)
def test_options_that_do_not_fit(cli: Cli, words: list[str], told: str):
    digits = str(Path(__file__).parents[3] / "configs" / "digits.py")
    result = cli("data", *(word.format(digits=digits) for word in words))
    assert result.code == 2 and told in result.stderr
    assert not list(cli.directory.iterdir())
