"""Waves made of formulas, and folders of tones: sounds that need no program."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np

# Of spectrograms that librosa has made: rate, window, hop, bands.
SETTINGS: list[dict[str, Any]] = [
    {"samples": 2000, "numbers": (8000, 256, 80, 24)},
    {"samples": 3000, "numbers": (16_000, 400, 160, 20)},
    # Odd windows, whose last frame begins a sample later; odd hops; windows longer than
    # the clip; hops longer than the window.
    {"samples": 480, "numbers": (8000, 255, 80, 12)},
    {"samples": 700, "numbers": (16_000, 401, 133, 16)},
    {"samples": 300, "numbers": (8000, 513, 75, 8)},
    {"samples": 300, "numbers": (8000, 512, 101, 8)},
    {"samples": 360, "numbers": (8000, 33, 40, 6)},
]
RATE = 8000


def chirp(num: int) -> np.ndarray:
    """Return a rising tone with a hiss, in whole steps of int16, float64 (num,)."""
    time = np.arange(num)
    wave = 0.5 * np.sin(2 * np.pi * (0.02 + 1e-5 * time) * time)
    wave += 0.1 * np.sin(0.37 * time * time)
    return np.round(wave * 2**15) / 2**15


def write_tones(
    folder: Path, num: int = 24, seconds: float = 0.3, seed: int = 0
) -> Path:
    """Write noisy tones of three heights, a folder each, as WAV and FLAC in turn."""
    soundfile: Any = importlib.import_module("soundfile")
    rng = np.random.default_rng(seed)
    for split, count in {"train": num, "test": max(2, num // 3)}.items():
        for name, hertz in {"low": 300, "middle": 900, "high": 2100}.items():
            place = folder / split / name
            place.mkdir(parents=True)
            for i in range(count):
                length = rng.integers(RATE // 10, int(2 * seconds * RATE))
                time = np.arange(length) / RATE
                pitch = hertz * rng.uniform(0.9, 1.1)
                wave = 0.3 * np.sin(2 * np.pi * pitch * time + rng.uniform(0, 6))
                wave += 0.05 * rng.standard_normal(length)
                ending = ("wav", "flac")[i % 2]
                soundfile.write(place / f"{i:03}.{ending}", wave, RATE)
    return folder
