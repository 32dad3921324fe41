"""Sound files to clips of one length and rate.

Files are data that anybody may have written: of WAV and FLAC alone, and bounded before
they are decoded.
"""

import contextlib
import importlib
import importlib.util
import io
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxtrain import extras
from jaxtrain.config.sound import SoundConfig
from jaxtrain.data import formats
from jaxtrain.data.decode_limits import UnreadableError
from jaxtrain.data.read_files import FileData, LargeFile
from jaxtrain.errors import UserError

# Endings of names, in lower case.
ENDINGS_OF_SOUNDS = (".wav", ".flac")
# Endings of sounds in formats that are never read.
UNKNOWN_SOUNDS = (
    *(".aac", ".aif", ".aiff", ".amr", ".au", ".m4a", ".mp3", ".oga", ".ogg"),
    *(".opus", ".wma"),
)
# Samples of a file, of all channels: five hours at 16 kHz.
MAX_SAMPLES = 2**28
MAX_CHANNELS, MAX_RATE = 64, 384_000
# Samples of the slower rate that the filter of SciPy's `resample_poly` reaches on both
# sides.
FILTER_REACH = 10
# Samples, of all channels, that are looked at together.
BLOCK = 2**20
# So many samples in a row at the end of the scale are clipped; of 16 bits the end is
# 32767, of floating-point numbers 1.
CLIPPED, FULL = 4, 32767 / 32768


def check_installed() -> None:
    """Check that sound files can be read.

    Raises:
      UserError: the library is not installed.
    """
    if extras.missing("soundfile"):
        raise UserError(
            f"sound files need the extra audio: {extras.install('audio')} (soundfile "
            "is not installed)"
        )


def is_sound(name: bytes) -> bool:
    """Whether a file is taken for a sound that is read here, by its ending."""
    return formats.ending(name) in ENDINGS_OF_SOUNDS


def is_unread(name: bytes) -> bool:
    """Whether a file is taken for a sound of a format that is not read."""
    return formats.ending(name) in UNKNOWN_SOUNDS


class SoundLook(NamedTuple):
    """What a whole sound file is like.

    Attributes:
      format: Format of the file, as libsndfile calls it: WAV or FLAC.
      stored: Rate, channels and coding of its samples, in words.
      rate: Samples a second.
      num_samples: Samples of a channel.
      clipped: Whether samples in a row stand at the end of the scale.
    """

    format: str
    stored: str
    rate: int
    num_samples: int
    clipped: bool


def decode(
    data: FileData, sound: SoundConfig, seed: Sequence[int] | None = None
) -> np.ndarray:
    """Return a clip of a file: mono, at the rate and of the length of the config.

    Args:
      data: the file, or why it could not be read.
      sound: Section of the sound.
      seed: Numbers, 0 or more, that the place of a longer clip is a function of; None
        takes the middle. Of a shorter one silence is on both sides.

    Returns:
      int16 (samples, 1, 1).

    Raises:
      UnreadableError: it is no such file, damaged, empty, or too long.
    """
    with _opened(data) as file:
        return _clip(file, sound, seed)


def length(data: FileData) -> tuple[int, int]:
    """Return the rate of a file in Hz, and its samples of a channel, by its header.

    Raises:
      UnreadableError: it is no such file, damaged, empty, or too long.
    """
    with _opened(data) as file:
        return file.samplerate, file.frames


def look_at(data: FileData) -> SoundLook:
    """Read all samples of a file, and say what they are like.

    Raises:
      UnreadableError: it is no such file, damaged, empty, or too long.
    """
    with _opened(data) as file:
        num, channels, clipped = 0, file.channels, False
        for block in file.blocks(BLOCK // channels, dtype="float32", always_2d=True):
            num, clipped = num + len(block), clipped or _is_clipped(block)
        if num != file.frames:
            raise UnreadableError(f"it ends after {num:,} of {file.frames:,} samples")
        channel = "1 channel" if channels == 1 else f"{channels} channels"
        stored = f"{file.samplerate} Hz, {channel}, {file.subtype}"
        return SoundLook(file.format, stored, file.samplerate, num, clipped)


def _is_clipped(block: np.ndarray) -> bool:
    """Whether any channel, of (n, channels), stands at an end of the scale in a row."""
    at_end = np.abs(block) >= FULL
    ends = at_end[: 1 - CLIPPED]
    for n in range(1, CLIPPED):
        # The same end: a square wave of full scale goes from one to the other.
        later = slice(n, len(block) + 1 + n - CLIPPED)
        ends = ends & at_end[later] & (block[: len(ends)] == block[later])
    return bool(ends.any())


@contextlib.contextmanager
def _opened(data: FileData) -> Iterator[Any]:
    """Open the bytes of a file; what goes wrong while it is open is an UnreadableError.

    Raises:
      UnreadableError: it is no such file, damaged, empty, or too long.
    """
    if isinstance(data, LargeFile):
        data = data.read()
    if isinstance(data, OSError):
        raise UnreadableError(data.strerror or str(data)) from data
    if not data:
        raise UnreadableError("the file is empty")
    is_wav = data[:4] == b"RIFF" and data[8:12] == b"WAVE"
    if not (is_wav or data[:4] == b"fLaC"):
        raise UnreadableError("it is no sound of a known format (WAV, FLAC)")
    check_installed()
    # An extra, which type checkers need not find.
    soundfile: Any = importlib.import_module("soundfile")
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            _check(file)
            yield file
    except UnreadableError:
        raise
    # Damaged files make libsndfile raise several kinds of errors.
    except Exception as error:
        raise UnreadableError(" ".join(str(error).split()) or repr(error)) from error


def _check(file: Any) -> None:
    """Refuse a file that is too long, or has no sample."""
    num, rate, channels = file.frames, file.samplerate, file.channels
    within = channels <= MAX_CHANNELS and 0 < rate <= MAX_RATE
    if num * channels > MAX_SAMPLES or not within:
        raise UnreadableError(
            f"it has {num:,} samples of {channels} channels at {rate:,} Hz: at most "
            f"{MAX_SAMPLES:,} of all, {MAX_CHANNELS} channels and {MAX_RATE:,} Hz are "
            "read"
        )
    if num < 1:
        raise UnreadableError("it has no sample")


def _clip(file: Any, sound: SoundConfig, seed: Sequence[int] | None) -> np.ndarray:
    num, rate = file.frames, file.samplerate
    # In lowest terms: so many samples of the file are so many of the clip.
    common = math.gcd(rate, sound.sample_rate)
    theirs, ours = rate // common, sound.sample_rate // common
    length = num * ours // theirs
    start = _start(length, sound.samples, seed)
    # What the clip takes of the file, and what the filter reaches, from where a sample
    # of both falls together. A sample of the slower rate is as long as max(ours,
    # theirs) / theirs samples of the clip.
    margin = -(-FILTER_REACH * max(ours, theirs) // theirs)
    first = max(0, start - margin) // ours * theirs
    last = min(num, -(-(start + sound.samples + margin) * theirs // ours))
    file.seek(first)
    wave = file.read(last - first, dtype="float64", always_2d=True).mean(axis=1)
    if len(wave) != last - first:
        raise UnreadableError(f"it ends after {first + len(wave):,} of {num:,} samples")
    if rate != sound.sample_rate:
        from scipy.signal import resample_poly

        wave = resample_poly(wave, ours, theirs)
    offset = first // theirs * ours
    taken = wave[max(0, start - offset) :][: sound.samples]
    clip = np.zeros(sound.samples)
    left = max(0, -start)
    taken = taken[: sound.samples - left]
    clip[left : left + len(taken)] = taken
    levels = np.clip(np.rint(clip * 2**15), -(2**15), 2**15 - 1)
    return levels.astype(np.int16).reshape(sound.stored_shape)


def _start(length: int, samples: int, seed: Sequence[int] | None) -> int:
    """Return where the clip begins; below 0, so much silence is before the sound."""
    spare = length - samples
    if spare <= 0 or seed is None:
        return spare // 2
    return int(np.random.default_rng([*seed]).integers(0, spare + 1))
