"""The section `data.sound`: how sound files become what a model sees."""

from dataclasses import dataclass

from jaxtrain.config.base import Section, report
from jaxtrain.config.metadata import field


@dataclass(frozen=True, kw_only=True)
class SoundConfig(Section):
    """Clips of one length and rate, and their spectrograms: of an audio: source."""

    sample_rate: int = field(
        16_000,
        help="Samples a second that all clips are resampled to.",
    )
    seconds: float = field(
        1.0,
        help="Length of a clip: longer ones are cut, shorter ones padded with silence.",
    )
    random_crop: bool = field(
        False,
        help="Cut longer clips at a random place in training, and not in the middle; "
        "they are then streamed.",
    )
    window: int = field(
        512,
        help="Samples of a frame of the spectrogram, under a Hann window.",
    )
    hop: int = field(
        160,
        help="Samples from the beginning of a frame to that of the next.",
    )
    mels: int = field(
        64,
        help="Bands of the mel scale (Slaney's), up to half the sample rate.",
    )

    def validate(self) -> None:
        self._within(1000, 384_000, "sample_rate")
        self._positive("seconds")
        self._within(16, 2**16, "window")
        self._within(1, 2**16, "hop")
        self._within(2, 1024, "mels")
        if not 1 <= self.samples <= 2**26:
            report(
                f"seconds = {self.seconds} at sample_rate = {self.sample_rate}: "
                f"expected 1 to {2**26} samples",
                *("data.sound.seconds", "data.sound.sample_rate"),
            )
        if self.mels > self.window // 2:
            report(
                f"mels = {self.mels} with window = {self.window}: a frame has only "
                f"{self.window // 2} frequencies above 0; set mels to less, or window "
                "to more",
                *("data.sound.mels", "data.sound.window"),
            )

    @property
    def samples(self) -> int:
        """Samples of a clip."""
        return round(self.seconds * self.sample_rate)

    @property
    def stored_shape(self) -> tuple[int, int, int]:
        """Shape of a clip as it is stored, int16: (samples, 1, 1)."""
        return self.samples, 1, 1

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Shape of the spectrogram that the model sees: (mels, frames, 1).

        Silence of window // 2 samples is on both sides, as in librosa and torch.stft:
        an odd window has one sample less to move over.
        """
        return self.mels, 1 + (self.samples - self.window % 2) // self.hop, 1
