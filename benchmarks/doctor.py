"""How many images a second a core the check of a data set looks at, all checks on.

    python benchmarks/doctor.py [--images N]

The images are PNG files of 300x300 pixels in colour, windows of the two photographs
that scikit-learn ships. The whole check is timed, on one core, reports included. The
peer reads and decodes the files with Pillow, and does nothing else. Both run in turn;
what counts are the seconds of the CPU, as other programs may use the core, too.
"""

import argparse
import os
import statistics
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
from pairs import relate, take_turns, tell, timed
from PIL import Image
from sklearn.datasets import load_sample_image

from jaxtrain.config import Config, DataConfig
from jaxtrain.data.files import StoredFile
from jaxtrain.data.slices import NamedSplits
from jaxtrain.plugins.doctor.check import check

SIDE = 300
PAIRS = 5


class Files:
    """The files of a folder, of two classes."""

    image_shape = (None, None, 3)
    facts = {"num_classes": 2}  # noqa: RUF012

    def __init__(self, folder: Path):
        self._paths = sorted(folder.glob("*.png"))

    def __len__(self) -> int:
        return len(self._paths)

    def strata(self, indices: np.ndarray) -> np.ndarray:
        return (indices % 2).astype(np.int32)

    def read(self, indices: np.ndarray) -> tuple[list[StoredFile], np.ndarray]:
        paths = [self._paths[i] for i in indices]
        files = [StoredFile(str(path), path.read_bytes()) for path in paths]
        return files, self.strata(indices)


def write_images(folder: Path, num: int) -> int:
    """Write windows of photographs; return their bytes."""
    photographs = [load_sample_image(name) for name in ("china.jpg", "flower.jpg")]
    draws = np.random.default_rng(0)
    size = 0
    for i in range(num):
        photograph = photographs[i % 2]
        top, left = (draws.integers(n - SIDE) for n in photograph.shape[:2])
        window = photograph[top : top + SIDE, left : left + SIDE]
        path = folder / f"{i:06}.png"
        Image.fromarray(window).save(path)
        size += path.stat().st_size
    return size


def look(store: Files, splits: NamedSplits, out: Path) -> None:
    """Check the images, as the command does."""
    data = DataConfig(source="digits", image_size=224, validation_fraction=0.0)
    opened = mock.patch(
        "jaxtrain.data.opening.open_store", return_value=(store, splits)
    )
    with opened:
        check(Config(data=data), out, sized=True)


def decode(folder: Path) -> None:
    for path in sorted(folder.glob("*.png")):
        np.asarray(Image.open(path))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=2000)
    num = parser.parse_args().images
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = write_images(folder, num)
        store, parts = Files(folder), np.split(np.arange(num), [num * 9 // 10])
        splits = {"train": [parts[0]], "test": [parts[1]]}
        ours, peer = take_turns(
            [
                lambda: timed(lambda: look(store, splits, folder / "out")),
                lambda: timed(lambda: decode(folder)),
            ],
            PAIRS + 1,
        )
    # The first of each warms the caches.
    result = relate([cpu for _, cpu in ours[1:]], [cpu for _, cpu in peer[1:]], "s")
    cpu = statistics.median(cpu for _, cpu in ours[1:])
    sizes = {"images": num, "bytes_per_image": size / num}
    tell("doctor", {**result, "images_per_second": num / cpu, **sizes})


if __name__ == "__main__":
    main()
