"""The section `data.sound`: preprocessing of audio files to spectrograms."""

from dataclasses import dataclass

from jaxtrain.config.base import Section, report
from jaxtrain.config.metadata import field


@dataclass(frozen=True, kw_only=True)
class SoundConfig(Section):
    """Clips and mel spectrograms of `audio:` sources."""

    sample_rate: int = field(
        16_000,
        help="Sample rate in Hz that all clips are resampled to.",
    )
    seconds: float = field(
        1.0,
        help="Length of a clip in seconds: longer recordings are cropped, shorter ones "
        "padded with silence.",
    )
    random_crop: bool = field(
        False,
        help="In training, crop longer recordings at a random position instead of the "
        "centre; the data are then streamed.",
    )
    window: int = field(
        512,
        help="Window length of the spectrogram in samples (Hann window).",
    )
    hop: int = field(
        160,
        help="Hop length of the spectrogram: samples between starts of frames.",
    )
    mels: int = field(
        64,
        help="Number of mel bands (Slaney's scale), from 0 Hz to half the sample rate.",
    )

    def validate(self) -> None:
        self._within(1000, 384_000, "sample_rate")
        self._positive("seconds")
        self._within(16, 2**16, "window")
        self._within(1, 2**16, "hop")
        self._within(2, 1024, "mels")
        if not 1 <= self.samples <= 2**26:
            report(
                f"data.sound.seconds = {self.seconds} with data.sound.sample_rate = "
                f"{self.sample_rate}: expected 1 to {2**26} samples per clip",
                *("data.sound.seconds", "data.sound.sample_rate"),
            )
        if self.mels > self.window // 2:
            report(
                f"data.sound.mels = {self.mels} with data.sound.window = "
                f"{self.window}: a frame has only {self.window // 2} frequencies above "
                "0; reduce data.sound.mels, or increase data.sound.window",
                *("data.sound.mels", "data.sound.window"),
            )

    @property
    def samples(self) -> int:
        """Number of samples of a clip."""
        return round(self.seconds * self.sample_rate)

    @property
    def stored_shape(self) -> tuple[int, int, int]:
        """Shape of a stored clip, (samples, 1, 1), int16."""
        return self.samples, 1, 1

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Shape of a spectrogram, the model's input: (mels, frames, 1).

        Both ends of the clip are padded with window // 2 zeros, as in librosa and
        torch.stft. For an odd window the total padding is thus window - 1.
        """
        return self.mels, 1 + (self.samples - self.window % 2) // self.hop, 1
