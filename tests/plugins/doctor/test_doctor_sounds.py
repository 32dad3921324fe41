"""The check of a folder of sounds: what is wrong with files, levels, lengths, rates."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxtrain.data.decode_limits import UnreadableError
from jaxtrain.plugins.sound import sound_files
from tests.helpers.waves import RATE

soundfile: Any = pytest.importorskip("soundfile")


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
