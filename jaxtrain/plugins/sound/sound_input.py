"""Sound clips as model inputs, converted to spectrograms."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jaxtrain.config import SoundConfig
from jaxtrain.data.decode_limits import UnreadableError
from jaxtrain.data.file_kind import FileKind
from jaxtrain.data.input_kind import FileLook, InputKind
from jaxtrain.data.read_files import FileData, LargeFile
from jaxtrain.plugins.sound import sound_files

if TYPE_CHECKING:
    import jax

SOUNDS = FileKind(
    "sound",
    sound_files.is_sound,
    lambda: sound_files.ENDINGS_OF_SOUNDS,
    "sound.wav",
    sound_files.is_unread,
)


@dataclass(frozen=True)
class SoundInput(InputKind):
    """Input type of sounds; examples are stored as clips, int16 (samples, 1, 1).

    Attributes:
      sound: Config section `data.sound`.
    """

    sound: SoundConfig

    noun: ClassVar[str] = "sound"
    source: ClassVar[str] = "audio"
    files: ClassVar[FileKind] = SOUNDS
    are_images: ClassVar[bool] = False
    dtype: ClassVar[type[np.generic]] = np.int16

    @classmethod
    def marks(cls, name: bytes) -> bool:
        """Whether a file has the extension of a supported sound format."""
        return sound_files.is_sound(name)

    def check_installed(self) -> None:
        """Check that the sound library is installed.

        Raises:
          UserError: The library is not installed.
        """
        sound_files.check_installed()

    @property
    def settings(self) -> str:
        """Text of the config section `data.sound`, for messages."""
        return str(self.sound)

    @property
    def crops_at_random(self) -> bool:
        """Whether clips are cropped at random positions."""
        return self.sound.random_crop

    def changes(self) -> Mapping[str, bool]:
        """Reason why clips may differ between epochs -> whether it applies."""
        why = "clips are cropped at random (data.sound.random_crop)"
        return {why: self.sound.random_crop}

    def stored_shape(self, image_shape: tuple[int, int, int]) -> tuple[int, int, int]:
        """Shape of a stored clip, (samples, 1, 1)."""
        return self.sound.stored_shape

    def image_shape(self, stored_shape: tuple[int, int, int]) -> tuple[int, int, int]:
        """Shape of a spectrogram, (mels, frames, 1)."""
        return self.sound.image_shape

    def to_images(self, stored: "jax.Array") -> "jax.Array":
        """Compute the spectrograms of clips (see `log_mel.to_images`). Traced."""
        # Not imported at the top, because the module imports JAX.
        from jaxtrain.plugins.sound import log_mel

        return log_mel.to_images(stored, self.sound)

    def decode(self, data: FileData, seed: Sequence[int] | None = None) -> np.ndarray:
        """Decode a clip from a file (see `sound_files.decode`)."""
        return sound_files.decode(data, self.sound, seed)

    def to_stored(self, given: Any) -> np.ndarray:
        """Convert a model input to a clip.

        Args:
          given: Contents of a file, or int16 samples at the config's sample rate,
            (samples,) or (samples, 1, 1).

        Raises:
          UnreadableError: The input has another type or shape, or the file is damaged.
        """
        if isinstance(given, bytes | LargeFile):
            return self.decode(given)
        shape = self.sound.stored_shape
        known = isinstance(given, np.ndarray) and given.dtype == np.int16
        samples = np.asarray(given) if known else np.zeros(0)
        if samples.shape not in (shape, shape[:1]):
            raise UnreadableError(
                f"expected a WAV or FLAC file, or int16 samples {shape[:1]} at "
                f"{self.sound.sample_rate} Hz"
            )
        return samples.reshape(shape)

    def size_of(self, data: FileData) -> tuple[int, int]:
        """Read (sample rate in Hz, number of samples per channel) of a file."""
        return sound_files.length(data)

    def look_at(self, data: FileData) -> FileLook:
        """Read all samples of a file; return its description.

        The description's `width` is the duration in milliseconds.
        """
        found = sound_files.look_at(data)
        return FileLook(
            mode=found.stored,
            format=found.format,
            remarks=["clipped"] if found.clipped else [],
            height=1,
            width=max(1, round(1000 * found.num_samples / found.rate)),
        )
