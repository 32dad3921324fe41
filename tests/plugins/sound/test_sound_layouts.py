"""Folders of sounds without the kind of their source, and descriptions of models."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from jaxtrain.config import DataConfig, SoundConfig
from jaxtrain.data.input_kind import PICTURES
from jaxtrain.data.opening import complete, open_store
from jaxtrain.errors import UserError
from jaxtrain.plugins.sound.sound_input import SoundInput
from jaxtrain.weights.description import Description
from tests.helpers import taught
from tests.helpers.rows import each_row

SOUND = SoundConfig(sample_rate=8000, seconds=0.1, window=64, hop=100, mels=8)


@each_row(
    ("files", "source"),
    [
        (["audio/1.wav", "list.csv"], "audio:{}/list.csv"),
        (["a/1.FLAC", "b/1.wav"], "audio:{}"),
        # The first file tells: .mp3 are not read, and those with a dot are hidden.
        (["a/.0.wav", "a/1.png", "b/2.wav"], "folder:{}"),
        (["a/1.mp3", "b/2.wav"], "audio:{}"),
        (["a/1.mp3", "b/2.mp3"], "folder:{}"),
    ],
)
def test_the_first_file_says_how_a_folder_is_read(
    files: list[str], source: str, tmp_path: Path
):
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text("path,label\n1.wav,a\n")
    assert complete(str(tmp_path)) == source.format(tmp_path)


def test_a_folder_that_is_not_there(tmp_path: Path):
    pytest.importorskip("soundfile")
    with pytest.raises(UserError, match=r"none' does not exist .relative to"):
        open_store(DataConfig(source=f"audio:{tmp_path}/none"))


def described(**changes: Any) -> dict[str, Any]:
    about = taught.describe(image_shape=SOUND.image_shape, input=SoundInput(SOUND))
    return {**about.to_dict(), **changes}


def test_a_description_is_read_back():
    values = described()
    assert values["sound"] == dataclasses.asdict(SOUND)
    about = Description.from_dict(values, "here")
    assert about.input == SoundInput(SOUND) and about.to_dict() == values
    # As models of images had it.
    assert Description.from_dict({**values, "sound": None}, "here").input == PICTURES


@each_row(
    ("changes", "message"),
    [
        ({"sound": {"mels": "8"}}, r"here: .* - at `\$\.sound\.mels`"),
        ({"image_shape": (9, 9, 1)}, r"here: sound = .* images of shape \(9, 9, 1\)"),
        ({"smell": {}}, "differs in smell"),
    ],
)
def test_a_damaged_description_is_refused(changes: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        Description.from_dict(described(**changes), "here")
