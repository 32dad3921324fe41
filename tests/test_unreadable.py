"""Unreadable images: others take their places, evaluations leave them out, all told."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxtrain.cli import main
from jaxtrain.data import loader
from jaxtrain.data.defects import Defects
from jaxtrain.data.files import StoredFile
from jaxtrain.data.image_source import ImageSource, Unreadable
from jaxtrain.errors import UserError
from tests.helpers.images import Example, grey, load_images, read_all, write_tfds
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import read_lines, read_summary

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
    filled = source.fill_in(read, indices, unreadable)
    assert (filled["target"] == indices % 3).all()
    good = np.setdiff1d(indices, BAD_TRAIN)
    assert (filled["image"][good] == read["image"][good]).all()
    for bad in BAD_TRAIN:
        stands_in = int(filled["image"][bad, 0, 0, 0]) // 5
        assert stands_in in good and stands_in % 3 == bad % 3
        # In another batch it is the same one.
        one = np.array([bad])
        same = [u for u in unreadable if u.index == bad]
        again = source.fill_in(source.read(one, unreadable=[]), one, same)
        assert (again["image"][0] == filled["image"][bad]).all()
    with pytest.raises(UserError, match="image 3 is unreadable"):
        read_all(source)


def test_a_split_read_in_blocks_is_what_is_read_at_once(
    tiny: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(loader, "READ_BLOCK", 5)
    source = load_images(source="tfds:tiny", data_dir=tiny, validation_fraction=0).train
    at_once: list[Unreadable] = []
    expected = read_all(source, unreadable=at_once)
    batch, unreadable = loader.read_all(source)
    assert unreadable == at_once and len(unreadable) == len(BAD_TRAIN)
    assert batch.keys() == expected.keys()
    assert all((batch[name] == expected[name]).all() for name in expected)


def test_another_of_a_rare_class_is_found():
    """Of 100,000 images three are of the class, and one of them can be read."""
    label = np.zeros(100_000, np.int32)
    label[[10, 20, 30]] = 1
    pixels = np.arange(len(label)).astype(np.uint8).reshape(-1, 1, 1, 1)
    image: list[Any] = [*pixels]
    for bad in (10, 30):
        image[bad] = StoredFile(f"{bad}.png", b"")
    source = ImageSource(Listed(image, label), np.arange(len(label)), (1, 1, 1), 100)
    unreadable: list[Unreadable] = []
    one = np.array([10])
    read = source.read(one, unreadable=unreadable)
    filled = source.fill_in(read, one, unreadable)
    assert filled["image"].item() == 20 and filled["target"].item() == 1


@dataclass(frozen=True)
class Listed:
    """A store of images and files, one by one."""

    images: list[Any]
    label: np.ndarray
    image_shape = (None, None, 1)

    @property
    def facts(self) -> dict[str, Any]:
        return {"num_classes": 2}

    def strata(self, indices: np.ndarray) -> np.ndarray:
        return self.label[indices]

    def read(self, indices: np.ndarray) -> tuple[list[Any], np.ndarray]:
        return [self.images[i] for i in indices], self.label[indices]


def test_a_class_without_a_readable_image_is_told(tmp_path: Path):
    train = [(grey(1), 0), (b"", 1), (grey(3), 0)]
    write_tfds(tmp_path, {"train": train, "test": train})
    source = load_images(
        source="tfds:tiny", data_dir=str(tmp_path), validation_fraction=0
    ).train
    unreadable: list[Unreadable] = []
    read = read_all(source, unreadable=unreadable)
    with pytest.raises(UserError, match="no other image of its class"):
        source.fill_in(read, np.arange(3), unreadable)


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
    model='ModelConfig(name="convnet", width=0.25)',
    train="TrainConfig(steps=9)",
    checkpoint="CheckpointConfig(every_steps=9)",
    logging="LoggingConfig(every_steps=3, tensorboard=False)",
)


def test_a_run_goes_on_and_tells(tiny: str, tmp_path: Path):
    config = write_recipe(tmp_path / "run.py", RUN)
    results = {}
    for words in ("", "--data.cache stream", "--data.workers 1"):
        workdir = tmp_path / words.replace(" ", "")
        command = (
            f"--config {config} --data.data-dir {tiny} --workdir {workdir} {words}"
        )
        assert main(command.split()) == 0
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


def test_a_run_with_too_many_is_refused(
    tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    config = write_recipe(tmp_path / "run.py", RUN)
    head = f"--config {config} --data.data-dir {tiny} --data.max-bad-fraction 0.03"
    for words in ("", "--data.cache stream", "--data.workers 1"):
        command = f"{head} --workdir {tmp_path / 'run'} {words}"
        assert main(command.split()) == 2
        told = capsys.readouterr().err
        assert "2 of the 32 images of the train split are unreadable" in told
        assert "split 'train' of tfds:tiny: image 3 is unreadable" in told
