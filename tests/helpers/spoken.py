"""The digits, spoken by espeak-ng in several voices, speeds and pitches.

As a script it writes a folder of WAV files, one folder a word, for `audio:DIR`:

    python -m tests.helpers.spoken OUT [--num 60] [--seed 0]

The train and the test split have other voices. It needs the program espeak-ng.
"""

import argparse
import shutil
import subprocess
from pathlib import Path

import numpy as np

WORDS = ("zero", "one", "two", "three", "four")
WORDS += ("five", "six", "seven", "eight", "nine")
# Of a split: accents and variants of espeak-ng's voices.
ACCENTS = ("en-us", "en-gb", "en-gb-scotland", "en-029")
VOICES = {
    "train": ("m1", "m2", "m3", "m4", "f1", "f2", "f3"),
    "test": ("m5", "m7", "f4", "f5"),
}
# Words a minute, and pitch of 0 to 99.
SPEEDS, PITCHES = (110, 230), (20, 80)


def write(folder: Path, num: int = 60, seed: int = 0) -> None:
    """Write `num` files of each word to train on, and a third of it to test.

    Raises:
      FileNotFoundError: the program is not there.
    """
    program = shutil.which("espeak-ng")
    if program is None:
        raise FileNotFoundError("espeak-ng: apt-get install espeak-ng")
    for split, part in {"train": num, "test": max(1, num // 3)}.items():
        for label, word in enumerate(WORDS):
            place = folder / split / word
            place.mkdir(parents=True)
            for i in range(part):
                rng = np.random.default_rng([seed, label, i, len(split)])
                voice = f"{rng.choice(ACCENTS)}+{rng.choice(VOICES[split])}"
                speed, pitch = rng.integers(*SPEEDS), rng.integers(*PITCHES)
                options = ["-v", voice, "-s", str(speed), "-p", str(pitch)]
                out = ["-w", str(place / f"{i:04}.wav"), word]
                subprocess.run([program, *options, *out], check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--num", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    write(given.out, given.num, given.seed)
