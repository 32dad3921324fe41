"""The check of a folder of sounds: what is wrong with files, levels, lengths, rates."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxtrain.config import Config, DataConfig, SoundConfig
from jaxtrain.data.decode_limits import UnreadableError
from jaxtrain.plugins.doctor.check import check
from jaxtrain.plugins.sound import sound_files
from tests.helpers.waves import RATE, write_tones

soundfile: Any = pytest.importorskip("soundfile")
SECONDS = 0.3


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("heard")
    place = write_tones(folder / "tones", num=10, seconds=SECONDS)
    low = place / "train" / "low"
    (low / "bad.wav").write_bytes(b"no sound")
    whole = (low / "001.flac").read_bytes()
    (low / "cut.flac").write_bytes(whole[: len(whole) // 2])
    shutil.copy(low / "003.flac", place / "test" / "middle" / "same.flac")
    tone = 0.3 * np.sin(0.05 * np.arange(3 * RATE))
    sounds = {
        "silent": (np.zeros(RATE // 4), RATE),
        "clipped": (np.clip(10 * tone[: RATE // 4], -1, 1), RATE),
        "long": (tone, RATE),
        "other": (np.stack([tone, tone], 1)[: RATE // 2], 2 * RATE),
    }
    for name, (wave, rate) in sounds.items():
        soundfile.write(low / f"{name}.wav", wave, rate)
    sound = SoundConfig(sample_rate=RATE, seconds=SECONDS, window=128, hop=64, mels=16)
    data = DataConfig(source=f"audio:{place}", sound=sound)
    check(Config(data=data), folder / "out", sized=True)
    page = (folder / "out" / "data_report.html").read_text()
    return json.loads((folder / "out" / "data_report.json").read_text()), page


def found(report: Any, kind: str) -> list[str]:
    """Return the names of the files of a finding."""
    (one,) = [x for x in report[0]["findings"] if x["kind"] == kind]
    return sorted(Path(example["name"]).name for example in one["examples"])


def test_it_finds_what_is_wrong(report: Any):
    assert found(report, "unreadable") == ["bad.wav", "cut.flac"]
    assert found(report, "silent") == ["silent.wav"]
    assert found(report, "clipped") == ["clipped.wav"]
    assert found(report, "length_long") == ["long.wav"]
    assert found(report, "rates") == ["other.wav"]
    assert found(report, "duplicates_conflict") == ["003.flac", "same.flac"]
    assert not report[0]["ok"]
    kinds = {one["kind"] for one in report[0]["findings"]}
    assert not kinds & {"blank", "aspect", "sizes", "modes"}


def test_levels_at_the_end_of_the_scale_in_a_row_are_clipped(tmp_path: Path):
    def clipped(wave: Any, coding: str = "PCM_16") -> bool:
        soundfile.write(tmp_path / "x.wav", np.array(wave, float), RATE, subtype=coding)
        return sound_files.look_at((tmp_path / "x.wav").read_bytes()).clipped

    quiet = [0.0, 0.5, -0.5]
    assert clipped([*quiet, 1, 1, 1, 1, 0])
    assert clipped([*quiet, -1, -1, -1, -1], "PCM_24")
    assert clipped([*quiet, 1, 1, 1, 1, 0], "FLOAT")
    # A normalised peak, and a square wave of full scale.
    assert not clipped([*quiet, 1, 1, 1, 0.9, 1])
    assert not clipped([1, -1] * 20)
    assert not clipped([1.0])
    both = np.zeros((8, 2))
    both[2:6, 1] = 1
    assert clipped(both)


def test_a_sound_is_described(tmp_path: Path):
    soundfile.write(tmp_path / "x.flac", np.zeros((1200, 2)), RATE)
    found = sound_files.look_at((tmp_path / "x.flac").read_bytes())
    assert found == ("FLAC", "8000 Hz, 2 channels, PCM_16", RATE, 1200, False)
    with pytest.raises(UnreadableError, match="the file is empty"):
        sound_files.look_at(b"")
