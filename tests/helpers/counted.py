"""A folder of PNGs and its table: how many things there are, and where.

Bright squares of a few pixels for tests; as a script, digits on photographs:

    python -m tests.helpers.counted OUT [--num 8000]
"""

import argparse
import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.helpers.composed import compose
from tests.helpers.recipes import recipe

SIZE, MOST = 16, 4
COLUMNS = ("count", "x")


def squares(num: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return grey images with some squares, and their number and mean x, (num, 2)."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 60, (num, SIZE, SIZE)).astype(np.uint8)
    numbers = np.zeros((num, 2))
    for image, row in zip(images, numbers, strict=True):
        places = rng.permutation(16)[: rng.integers(1, MOST + 1)]
        tops, lefts = np.divmod(places, 4)
        for top, left in zip(4 * tops, 4 * lefts, strict=True):
            image[top : top + 3, left : left + 3] = 250
        row[:] = len(places), lefts.mean() * 4 + 1.5
    return images, numbers


def write_table(
    folder: Path, num: int = 96, cells: Mapping[tuple[int, str], str] | None = None
) -> Path:
    """Write `list.csv` and its images; `cells` replaces some by row and column."""
    folder.mkdir(exist_ok=True)
    images, numbers = squares(num)
    with (folder / "list.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["path", *COLUMNS])
        for i, (image, row) in enumerate(zip(images, numbers, strict=True)):
            Image.fromarray(image).save(folder / f"{i:03}.png")
            told = dict(zip(COLUMNS, map(str, row.tolist()), strict=True))
            told |= {name: x for (at, name), x in (cells or {}).items() if at == i}
            table.writerow([f"{i:03}.png", *told.values()])
    return folder / "list.csv"


def counting(
    targets: tuple[str, ...] = COLUMNS, options: str = "", **changes: Any
) -> str:
    """Return the config of a tiny run on `list.csv` in the current folder."""
    parts = {
        "data": f'DataConfig(source="csv:list.csv", targets={targets!r}, channels=1, '
        f"image_size={SIZE}, crop_pct=1.0, batch_size=16, validation_fraction=0.25, "
        "test_fraction=0.25)",
        "optimizer": "AdamWConfig(learning_rate=0.003)",
        "train": "TrainConfig(steps=12, eval_every_steps=4)",
        "checkpoint": "CheckpointConfig(every_steps=4)",
        "logging": "LoggingConfig(every_steps=1)",
        **changes,
    }
    return recipe(task=f"RegressionConfig({options})", **parts)


def write_composed(folder: Path, sizes: Mapping[str, int], seed: int = 0) -> Path:
    """Write digits on photographs, and a table of how many, and their mean place.

    Args:
      folder: Folder to make.
      sizes: Split -> number of its images.
      seed: Seed of the images.
    """
    folder.mkdir(parents=True)
    with (folder / "list.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["path", "split", "count", "x", "y"])
        for split, num in sizes.items():
            made = compose(num, seed=seed, split=split)
            (folder / split).mkdir()
            for i, (image, boxes) in enumerate(
                zip(made.image, made.boxes, strict=True)
            ):
                path = f"{split}/{i:06}.png"
                Image.fromarray(image).save(folder / path, compress_level=1)
                there = boxes[boxes.any(-1)]
                middle = (there[:, :2] + there[:, 2:]).mean(0) / 2
                place = [f"{value:.2f}" for value in middle.tolist()]
                table.writerow([path, split, len(there), *place])
    return folder / "list.csv"


def main() -> None:
    """Write training images, and a tenth as many to test."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--num", type=int, default=8000)
    given = parser.parse_args()
    sizes = {"train": given.num, "test": max(1, given.num // 10)}
    print(write_composed(given.out, sizes))


if __name__ == "__main__":
    main()
