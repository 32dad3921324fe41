"""A run that goes on over data that have changed, or have moved."""

from pathlib import Path
from typing import Any

import pytest

from jaxtrain.cli import main
from jaxtrain.errors import UserError
from jaxtrain.records import data_record
from tests.helpers.images import write_folder
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import assert_same_run

FILES = {f"{c}/{i:02d}.png": 40 * i + 7 * (c == "b") for c in "ab" for i in range(6)}
RUN = recipe(
    data='DataConfig(source="folder:set", image_size=8, batch_size=4)',
    model='ConvNetConfig(name="convnet", width=0.125)',
    train="TrainConfig(steps=4)",
    checkpoint="CheckpointConfig(every_steps=2)",
    logging="LoggingConfig(every_steps=2, tensorboard=False)",
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "set", FILES)
    write_recipe(tmp_path / "run.py", RUN)
    return tmp_path


def start(*words: object) -> int:
    return main(["--config", "run.py", *map(str, words)])


def stopped(*words: object) -> None:
    assert start("--workdir", "run", "--train.stop-after-steps", 2, *words) == 0


@pytest.mark.slow
def test_moved_data_are_the_same(here: Path):
    assert start("--workdir", "whole") == 0
    stopped()
    (here / "set").rename(here / "moved")
    assert start("--workdir", "run", "--data.source", "folder:moved") == 0
    assert_same_run(here / "whole", here / "run", 4)


# What is written (None: removed), and what is told of it.
CHANGES: list[tuple[dict[str, int | None], str]] = [
    ({"a/99.png": 1}, "examples of the train split: 10 -> 11"),
    ({"a/99.png": None, "c/1.png": 1, "c/2.png": 2}, "classes: 2 -> 3"),
    ({"c/1.png": None, "c/2.png": None, "c": None, "a/00.png": None}, "10 -> 9"),
    ({"a/99.png": 1}, "the digest of the file names or contents"),
]


@pytest.mark.slow
def test_changed_data_are_refused(here: Path, capsys: pytest.CaptureFixture[str]):
    stopped()
    for change, message in CHANGES:
        write_folder(here / "set", {n: v for n, v in change.items() if v is not None})
        for name in (name for name, value in change.items() if value is None):
            path = here / "set" / name
            path.rmdir() if path.is_dir() else path.unlink()
        assert start("--workdir", "run") == 2
        told = capsys.readouterr().err
        assert "run contains a run of other data:\n" in told and message in told
    # Elsewhere they are no less changed: then the source itself is refused.
    (here / "set").rename(here / "moved")
    assert start("--workdir", "run", "--data.source", "folder:moved") == 2
    assert "data.source: 'folder:set' -> 'folder:moved'" in capsys.readouterr().err
    words = ("--fresh", "--train.stop-after-steps", 1)
    assert start("--workdir", "run", "--data.source", "folder:moved", *words) == 0


DATA = {
    "source": "folder:set",
    "num_examples": {"train": 10, "test": 2},
    "num_classes": 2,
    "class_names": ["a", "b"],
    "digest": "0",
}


@each_row(
    ("change", "told"),
    [
        ({}, []),
        ({"source": "folder:moved"}, []),
        ({"class_names": None}, []),
        ({"digest": None}, []),
        ({"class_names": ["b", "a"]}, ["class names: another order"]),
        ({"class_names": ["a", "c"]}, ["class names: gone: b; new: c"]),
        ({"num_examples": {"train": 10}}, ["examples of the test split: 2 -> None"]),
    ],
)
def test_changes_are_described(change: dict[str, Any], told: list[str]):
    assert data_record.describe_changes(DATA, {**DATA, **change}) == told
    moved = data_record.are_known_equal(DATA, {**DATA, **change})
    assert moved == (not told and change.get("digest", "0") is not None)


def test_processes_with_other_data_are_refused():
    data_record.check_agree([DATA, DATA])
    with pytest.raises(
        UserError, match=r"(?s)differs between process 1 and process 0.*digest"
    ):
        data_record.check_agree([DATA, {**DATA, "digest": "1"}])
