"""Write what librosa makes of a wave: decibels of its mel bands.

Run it in an environment of its own, with librosa:

    python -m tests.oracles.log_mel
"""

import json
from pathlib import Path

import librosa  # pyright: ignore[reportMissingImports]
import numpy as np

from tests.helpers.waves import SETTINGS, chirp

PATH = Path(__file__).parents[1] / "stored" / "log_mel.json"


def decibels(wave: np.ndarray, rate: int, window: int, hop: int, mels: int) -> list:
    """Return decibels, (mels, frames), rounded to what float32 can tell."""
    power = librosa.feature.melspectrogram(
        y=wave, sr=rate, n_fft=window, hop_length=hop, n_mels=mels
    )
    found = librosa.power_to_db(power, ref=1.0, amin=1e-10, top_db=None)
    return np.round(found, 5).tolist()


if __name__ == "__main__":
    made = [decibels(chirp(one["samples"]), *one["numbers"]) for one in SETTINGS]
    PATH.write_text(json.dumps(made) + "\n")
