"""Sound files to clips: rates, lengths, channels, and files that are none."""

import io
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.signal import resample_poly

from jaxtrain.config import DataConfig, SoundConfig
from jaxtrain.data import sources
from jaxtrain.data.decode_limits import UnreadableError
from jaxtrain.errors import UserError
from jaxtrain.plugins.sound.sound_files import decode
from tests.helpers.rows import each_row
from tests.helpers.waves import RATE, write_tones

soundfile = pytest.importorskip("soundfile")
SOUND = SoundConfig(sample_rate=RATE, seconds=0.1, window=64, hop=32, mels=8)


def written(wave: np.ndarray, rate: int = RATE, format: str = "WAV") -> bytes:
    file = io.BytesIO()
    soundfile.write(file, wave, rate, format=format, subtype="PCM_16")
    return file.getvalue()


def levels(num: int) -> np.ndarray:
    """Return different values of int16."""
    return (np.arange(num) * 7 - 1000).astype(np.int16)


@pytest.mark.parametrize("format", ["WAV", "FLAC"])
def test_a_clip_as_long_as_the_file_is_its_samples(format: str):
    wave = levels(SOUND.samples)
    found = decode(written(wave, format=format), SOUND)
    assert found.shape == (800, 1, 1) and found.dtype == np.int16
    np.testing.assert_array_equal(found[:, 0, 0], wave)


def test_long_ones_are_cut_in_the_middle_and_short_ones_padded():
    wave = levels(2000)
    np.testing.assert_array_equal(decode(written(wave), SOUND)[:, 0, 0], wave[600:1400])
    short = decode(written(wave[:301]), SOUND)[:, 0, 0]
    np.testing.assert_array_equal(short[250:551], wave[:301])
    assert not short[:250].any() and not short[551:].any()


def test_the_random_place_is_a_function_of_the_seed_and_covers_all():
    wave, data = levels(2000), written(levels(2000))
    starts = set()
    for seed in range(60):
        found = decode(data, SOUND, [1, 2, seed])[:, 0, 0]
        (start,) = np.flatnonzero(wave == found[0])
        np.testing.assert_array_equal(found, wave[start : start + 800])
        np.testing.assert_array_equal(found, decode(data, SOUND, [1, 2, seed])[:, 0, 0])
        starts.add(int(start))
    assert min(starts) < 150 and max(starts) > 1050 and len(starts) > 40


def test_channels_become_their_mean():
    left = levels(800)
    both = np.stack([left, np.zeros_like(left)], 1)
    found = decode(written(both), SOUND)[:, 0, 0]
    assert np.abs(found - left / 2).max() <= 0.5


@each_row(
    "rate",
    # The rate rises by 0.2 to 4, among others by hardly less than a whole number.
    [40000, 16001, 11025, 8001, 5000, 4445, 4211, 4040, 4001, 4000, 2677, 2001, 2000],
)
def test_a_clip_is_cut_out_of_the_whole_file_resampled(rate: int):
    """SciPy's filter reaches beyond the ends of the clip, which is noise here."""
    rng = np.random.default_rng(rate)
    wave = rng.integers(-20_000, 20_000, 3 * rate // 10).astype(np.int16)
    common = math.gcd(rate, RATE)
    whole = resample_poly(wave / 2**15, RATE // common, rate // common)
    whole = np.clip(np.rint(whole * 2**15), -(2**15), 2**15 - 1)
    length, data = len(wave) * RATE // rate, written(wave, rate)
    middle = decode(data, SOUND)[:, 0, 0]
    start = (length - 800) // 2
    # The same sums, whose roundings in float64 may tip one that ends in a half.
    assert np.abs(middle - whole[start : start + 800]).max() <= 1
    for seed in range(5):
        start = int(np.random.default_rng([seed]).integers(0, length - 799))
        found = decode(data, SOUND, [seed])[:, 0, 0]
        assert np.abs(found - whole[start : start + 800]).max() <= 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"ID3" + bytes(100), "the file is neither WAV nor FLAC"),
        (b"RIFF\0\0\0\0WAVE" + bytes(50), "."),
        (b"fLaC" + bytes(50), "."),
        (OSError(2, "No such file or directory"), "No such file"),
        (written(levels(0)), "the file has no sample"),
    ],
)
def test_what_is_no_sound_says_why(data: bytes | OSError, message: str):
    with pytest.raises(UnreadableError, match=message):
        decode(data, SOUND)


def test_a_file_that_ends_early_is_unreadable():
    data = written(levels(2000), format="FLAC")
    with pytest.raises(UnreadableError):
        decode(data[: len(data) // 2], SOUND)


def test_a_folder_is_opened_by_classes_and_splits(tmp_path: Path):
    write_tones(tmp_path / "tones", num=6)
    (tmp_path / "tones" / "train" / "low" / "notes.txt").touch()
    config = DataConfig(source=f"audio:{tmp_path}/tones", sound=SOUND)
    splits = sources.load(config, seed=0)
    assert splits.train.facts["class_names"] == ("high", "low", "middle")
    assert splits.input_shape == (8, 26, 1)
    batch = splits.train.read(np.arange(3))
    assert batch["image"].shape == (3, 800, 1, 1)
    assert batch["image"].dtype == np.int16
    (tmp_path / "none" / "one").mkdir(parents=True)
    with pytest.raises(UserError, match=r"has no training sound: .*\.wav \.flac"):
        sources.load(DataConfig(source=f"audio:{tmp_path}/none"), seed=0)
