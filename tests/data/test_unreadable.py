"""Unreadable images: others take their places, evaluations leave them out, all told."""

import shlex
from pathlib import Path

import numpy as np
import pytest

from jaxtrain.cli import main
from jaxtrain.config import DataConfig
from jaxtrain.data import datasets, loader, sources
from jaxtrain.data.defects import Defects, Unreadable
from jaxtrain.data.replacements import fill_in
from jaxtrain.errors import UserError
from tests.helpers.images import Example, grey, load_images, read_all, write_tfds
from tests.helpers.processes import run_two
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import read_lines, read_summary
from tests.helpers.words import quoted

BAD_TRAIN, BAD_TEST = (3, 20), (1,)


def examples(num: int, bad: tuple[int, ...]) -> list[Example]:
    good = [(grey(5 * i, 8, 8), i % 3) for i in range(num)]
    return [
        (data[:30], n) if i in bad else (data, n) for i, (data, n) in enumerate(good)
    ]


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    splits = {"train": examples(32, BAD_TRAIN), "test": examples(8, BAD_TEST)}
    write_tfds(tmp_path, splits, (8, 8, 1))
    return str(tmp_path)


def test_another_of_the_same_class_takes_the_place(tiny: str):
    source = load_images(source="tfds:tiny", data_dir=tiny, validation_fraction=0).train
    unreadable: list[Unreadable] = []
    indices = np.arange(32)
    read = read_all(source, unreadable=unreadable)
    assert [bad.index for bad in unreadable] == list(BAD_TRAIN)
    assert unreadable[0].name == "split 'train' of tfds:tiny: image 3"
    filled = fill_in(source, read, indices, unreadable)
    assert (filled["target"] == indices % 3).all()
    good = np.setdiff1d(indices, BAD_TRAIN)
    assert (filled["image"][good] == read["image"][good]).all()
    for bad in BAD_TRAIN:
        stands_in = int(filled["image"][bad, 0, 0, 0]) // 5
        assert stands_in in good and stands_in % 3 == bad % 3
        # In another batch it is the same one.
        one = np.array([bad])
        same = [u for u in unreadable if u.index == bad]
        again = fill_in(source, source.read(one, unreadable=[]), one, same)
        assert (again["image"][0] == filled["image"][bad]).all()
    with pytest.raises(UserError, match="image 3 is unreadable"):
        read_all(source)


def test_a_split_read_in_blocks_is_what_is_read_at_once(
    tiny: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(datasets, "READ_BLOCK", 5)
    source = load_images(source="tfds:tiny", data_dir=tiny, validation_fraction=0).train
    at_once: list[Unreadable] = []
    expected = read_all(source, unreadable=at_once)
    batch, unreadable = datasets.read_all(source)
    assert unreadable == at_once and len(unreadable) == len(BAD_TRAIN)
    assert batch.keys() == expected.keys()
    assert all((batch[name] == expected[name]).all() for name in expected)


def test_a_class_without_a_readable_image_is_told(tmp_path: Path):
    train = [(grey(1), 0), (b"", 1), (grey(3), 0)]
    write_tfds(tmp_path, {"train": train, "test": train})
    source = load_images(
        source="tfds:tiny", data_dir=str(tmp_path), validation_fraction=0
    ).train
    unreadable: list[Unreadable] = []
    read = read_all(source, unreadable=unreadable)
    with pytest.raises(UserError, match="no other image of the class"):
        fill_in(source, read, np.arange(3), unreadable)


def test_too_many_are_named():
    bad = [Unreadable(i, f"image {i}", "it is empty") for i in range(3)]
    defects = Defects("train", 99, 0.02)
    defects.add(bad[:2])
    defects.add(bad[:2])
    assert defects.take_new() == bad[:2] and not defects.take_new()
    with pytest.raises(UserError, match="2 of the 2 images"):
        Defects("test", 2, 1.0).add(bad[:2])
    with pytest.raises(UserError, match="3 of the 99 images of the train split"):
        defects.add(bad[2:])


RUN = recipe(
    data='DataConfig(source="tfds:tiny", batch_size=8, max_bad_fraction=0.2, '
    "validation_fraction=0)",
    model='ConvNetConfig(name="convnet", width=0.25)',
    train="TrainConfig(steps=9)",
    checkpoint="CheckpointConfig(every_steps=9)",
    logging="LoggingConfig(every_steps=3, tensorboard=False)",
)


@pytest.mark.slow
def test_a_run_goes_on_and_tells(tiny: str, tmp_path: Path):
    config = write_recipe(tmp_path / "run.py", RUN)
    results = {}
    for words in ("", "--data.workers 1"):
        workdir = tmp_path / words.replace(" ", "")
        command = (
            f"--config {quoted(config)} --data.data-dir {quoted(tiny)} "
            f"--workdir {quoted(workdir)} {words}"
        )
        assert main(shlex.split(command)) == 0
        told = [
            (line["split"], line["name"][-7:])
            for line in read_lines(workdir, "event")
            if line["event"] == "unreadable image"
        ]
        assert sorted(told) == [
            ("test", "image 1"),
            ("train", "image 3"),
            ("train", "mage 20"),
        ]
        results[words] = read_summary(workdir)["eval"]
        assert results[words]["num_examples"] == 7
    assert len({str(values) for values in results.values()}) == 1


# --- two processes -------------------------------------------------------------------


@pytest.fixture
def shared(tiny: str, tmp_path: Path) -> list[object]:
    """Words of a run of two processes, of which each meets one of the bad images."""
    config = DataConfig(
        source="tfds:tiny", data_dir=tiny, validation_fraction=0, batch_size=8
    )
    order = loader.make_order(config, sources.load(config, 0).train, seed=0)
    indices = np.stack([order.indices(step) for step in range(4)])
    halves = [int(np.nonzero(indices == bad)[1][0]) // 4 for bad in BAD_TRAIN]
    assert sorted(halves) == [0, 1]
    run = write_recipe(tmp_path / "run.py", RUN)
    words = ["--config", run, "--data.data-dir", tiny, "--train.steps", 4]
    return [*words, "--data.cache", "stream", "--data.validation-fraction", 0]


@pytest.mark.exhaustive
def test_what_two_processes_meet_is_counted_together(
    shared: list[object], tmp_path: Path
):
    words = [*shared, "--data.max-bad-fraction", 0.03, "--workdir", tmp_path / "run"]
    result = run_two(tmp_path, *words)
    assert result.code == 2
    assert "2 of the 32 images of the train split are unreadable" in result.stderr
    for name in ("image 3", "image 20"):
        assert f"split 'train' of tfds:tiny: {name} is unreadable" in result.stderr


@pytest.mark.slow
def test_process_0_names_what_the_other_meets(shared: list[object], tmp_path: Path):
    told = {}
    for num in (1, 2):
        words = [*shared, "--workdir", tmp_path / str(num)]
        if num == 1:
            assert main([str(word) for word in words]) == 0
        else:
            assert run_two(tmp_path, *words).code == 0
        told[num] = sorted(
            (line["split"], line["name"], line["reason"])
            for line in read_lines(tmp_path / str(num), "event")
            if line["event"] == "unreadable image"
        )
    assert len(told[1]) == 3 and told[1] == told[2]
