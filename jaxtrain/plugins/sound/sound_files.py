"""Decoding of sound files to clips of fixed length and sample rate.

Files may be malicious: only WAV and FLAC are read, and limits are checked before
decoding.
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

# Extensions of supported sound formats, in lower case.
ENDINGS_OF_SOUNDS = (".wav", ".flac")
# Extensions of unsupported sound formats.
UNKNOWN_SOUNDS = (
    *(".aac", ".aif", ".aiff", ".amr", ".au", ".m4a", ".mp3", ".oga", ".ogg"),
    *(".opus", ".wma"),
)
# Maximum number of samples in a file, over all channels: five hours of mono at 16 kHz.
MAX_SAMPLES = 2**28
MAX_CHANNELS, MAX_RATE = 64, 384_000
# Half-width of the filter in SciPy's `resample_poly`, in samples at the lower rate.
FILTER_REACH = 10
# Number of samples, over all channels, that `look_at` reads per block.
BLOCK = 2**20
# A sound is clipped if at least `CLIPPED` consecutive samples have the magnitude
# `FULL`, the largest 16-bit sample.
CLIPPED, FULL = 4, 32767 / 32768


def check_installed() -> None:
    """Check that the sound library is installed.

    Raises:
      UserError: The library is not installed.
    """
    if extras.missing("soundfile"):
        raise UserError(
            "sound files require soundfile, which is not installed: "
            f"{extras.install('audio')}"
        )


def is_sound(name: bytes) -> bool:
    """Whether a file has the extension of a supported sound format."""
    return formats.ending(name) in ENDINGS_OF_SOUNDS


def is_unread(name: bytes) -> bool:
    """Whether a file has the extension of an unsupported sound format."""
    return formats.ending(name) in UNKNOWN_SOUNDS


class SoundLook(NamedTuple):
    """Properties of a sound file.

    Attributes:
      format: File format as named by libsndfile, such as WAV or FLAC.
      stored: Text with sample rate, number of channels and encoding.
      rate: Sample rate in Hz.
      num_samples: Number of samples per channel.
      clipped: Whether the sound is clipped (see `CLIPPED`).
    """

    format: str
    stored: str
    rate: int
    num_samples: int
    clipped: bool


def decode(
    data: FileData, sound: SoundConfig, seed: Sequence[int] | None = None
) -> np.ndarray:
    """Decode a clip: mono, with the sample rate and length of the config.

    Longer sounds are cropped; shorter sounds are padded with silence at both ends.

    Args:
      data: Contents of the file, or the error of reading it.
      sound: Config section `data.sound`.
      seed: Non-negative integers that seed a random crop; None crops the centre.

    Returns:
      The clip, int16 (samples, 1, 1).

    Raises:
      UnreadableError: Unsupported, damaged, empty or overlong file.
    """
    with _opened(data) as file:
        return _clip(file, sound, seed)


def length(data: FileData) -> tuple[int, int]:
    """Read (sample rate in Hz, number of samples per channel) from the file header.

    Raises:
      UnreadableError: Unsupported, damaged, empty or overlong file.
    """
    with _opened(data) as file:
        return file.samplerate, file.frames


def look_at(data: FileData) -> SoundLook:
    """Read all samples of a file, and describe the file.

    Raises:
      UnreadableError: Unsupported, damaged, empty or overlong file.
    """
    with _opened(data) as file:
        num, channels, clipped = 0, file.channels, False
        for block in file.blocks(BLOCK // channels, dtype="float32", always_2d=True):
            num, clipped = num + len(block), clipped or _is_clipped(block)
        if num != file.frames:
            raise UnreadableError(
                f"the file ends after {num:,} of {file.frames:,} samples"
            )
        channel = "1 channel" if channels == 1 else f"{channels} channels"
        stored = f"{file.samplerate} Hz, {channel}, {file.subtype}"
        return SoundLook(file.format, stored, file.samplerate, num, clipped)


def _is_clipped(block: np.ndarray) -> bool:
    """Whether a channel of a block, (n, channels), is clipped (see `CLIPPED`)."""
    at_end = np.abs(block) >= FULL
    ends = at_end[: 1 - CLIPPED]
    for n in range(1, CLIPPED):
        # Require equal signs: a square wave at full scale is not clipped.
        later = slice(n, len(block) + 1 + n - CLIPPED)
        ends = ends & at_end[later] & (block[: len(ends)] == block[later])
    return bool(ends.any())


@contextlib.contextmanager
def _opened(data: FileData) -> Iterator[Any]:
    """Context manager: open a file from its contents.

    Raises:
      UnreadableError: Unsupported, damaged, empty or overlong file.
    """
    if isinstance(data, LargeFile):
        data = data.read()
    if isinstance(data, OSError):
        raise UnreadableError(data.strerror or str(data)) from data
    if not data:
        raise UnreadableError("the file is empty")
    is_wav = data[:4] == b"RIFF" and data[8:12] == b"WAVE"
    if not (is_wav or data[:4] == b"fLaC"):
        raise UnreadableError("the file is neither WAV nor FLAC")
    check_installed()
    # soundfile is an optional dependency that type checkers may not find.
    soundfile: Any = importlib.import_module("soundfile")
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            _check(file)
            yield file
    except UnreadableError:
        raise
    # soundfile raises several kinds of errors for damaged files.
    except Exception as error:
        raise UnreadableError(" ".join(str(error).split()) or repr(error)) from error


def _check(file: Any) -> None:
    """Check the length, number of channels and sample rate of a file.

    Raises:
      UnreadableError: The file is empty or exceeds a limit.
    """
    num, rate, channels = file.frames, file.samplerate, file.channels
    within = channels <= MAX_CHANNELS and 0 < rate <= MAX_RATE
    if num * channels > MAX_SAMPLES or not within:
        raise UnreadableError(
            f"the file has {num:,} samples of {channels} channels at {rate:,} Hz: "
            f"expected at most {MAX_SAMPLES:,} samples over all channels, "
            f"{MAX_CHANNELS} channels and {MAX_RATE:,} Hz"
        )
    if num < 1:
        raise UnreadableError("the file has no samples")


def _clip(file: Any, sound: SoundConfig, seed: Sequence[int] | None) -> np.ndarray:
    num, rate = file.frames, file.samplerate
    # Reduce the ratio of the sample rates to lowest terms.
    common = math.gcd(rate, sound.sample_rate)
    theirs, ours = rate // common, sound.sample_rate // common
    length = num * ours // theirs
    start = _start(length, sound.samples, seed)
    # Read a margin for the resampling filter on both sides of the clip. A sample at the
    # lower rate lasts max(ours, theirs) / theirs samples of the clip. The first sample
    # that is read must coincide in time with a sample of the clip.
    margin = -(-FILTER_REACH * max(ours, theirs) // theirs)
    first = max(0, start - margin) // ours * theirs
    last = min(num, -(-(start + sound.samples + margin) * theirs // ours))
    file.seek(first)
    wave = file.read(last - first, dtype="float64", always_2d=True).mean(axis=1)
    if len(wave) != last - first:
        raise UnreadableError(
            f"the file ends after {first + len(wave):,} of {num:,} samples"
        )
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
    """Start of the clip in the sound, in samples; negative if padding comes first."""
    spare = length - samples
    if spare <= 0 or seed is None:
        return spare // 2
    return int(np.random.default_rng([*seed]).integers(0, spare + 1))
