"""The section `data.sound`: how sound files become what a model sees."""

from dataclasses import dataclass

from jaxtrain.config.base import Section, report


@dataclass(frozen=True, kw_only=True)
class SoundConfig(Section):
    """Clips of one length and rate, and their spectrograms: of an audio: source."""

    # Samples a second that all clips are resampled to.
    sample_rate: int = 16_000
    # Length of a clip: longer ones are cut, shorter ones padded with silence.
    seconds: float = 1.0
    # Cut longer clips at a random place in training, and not in the middle; they are
    # then streamed.
    random_crop: bool = False
    # Samples of a frame of the spectrogram, under a Hann window.
    window: int = 512
    # Samples from the beginning of a frame to that of the next.
    hop: int = 160
    # Bands of the mel scale (Slaney's), up to half the sample rate.
    mels: int = 64

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
