"""Images composed of garments, or digits, on tiles of photographs, and what is there.

Garments are those of Fashion-MNIST where its files are, else the digits that ship with
scikit-learn; the photographs are scikit-learn's two. Everything is a function of the
seed and of the number of an image. As a script it writes a folder of PNGs and a table:

    python -m tests.helpers.composed OUT [--num 1000] [--files IDX_DIR] [--seed 0]

With --masks it is a folder for `masks:OUT`: images, masks, and the list of the classes.
"""

import argparse
import csv
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from jaxtrain.config import DataConfig
from jaxtrain.data.idx import open_idx
from jaxtrain.data.stores import open_digits

GARMENTS = ("t-shirt", "trouser", "pullover", "dress", "coat")
GARMENTS += ("sandal", "shirt", "sneaker", "bag", "ankle-boot")
DIGITS = tuple(f"digit-{i}" for i in range(10))
# Pixels of a thing; of an image in four quarters, each of which has one or none.
THING, SIDE = 28, 64
# Brightness from which on a pixel belongs to a thing.
SEEN = 24
# Part of the brightness of a photograph that is left.
DIMMED = 0.5


@dataclass(frozen=True)
class Composed:
    """Composed images; N of them, up to four things in each.

    Attributes:
      names: Names of the classes, (C,).
      image: uint8 (N, 64, 64, 3).
      count: Number of things of each class, int (N, C).
      mask: 0 for the photograph, else 1 + the class of the thing, uint8 (N, 64, 64).
      instance: 0, else 1 + the number of the thing in its image, uint8 (N, 64, 64).
      boxes: Left, top, right and bottom of each thing, float32 (N, 4, 4); 0 if missing.
      box_class: Class of each thing, int (N, 4); -1 if missing.
    """

    names: tuple[str, ...]
    image: np.ndarray
    count: np.ndarray
    mask: np.ndarray
    instance: np.ndarray
    boxes: np.ndarray
    box_class: np.ndarray

    @property
    def present(self) -> np.ndarray:
        """Whether an image has a thing of each class, bool (N, C)."""
        return self.count > 0


def things(files: str | None, split: str) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return grey things, uint8 (n, 28, 28), their classes, and names of these.

    Args:
      files: Folder of idx files, such as those of Fashion-MNIST; None: digits.
      split: train or test.
    """
    source = "digits" if files is None else f"idx:{files}"
    config = DataConfig(source=source)
    opened = open_digits("", config) if files is None else open_idx(files, config)
    store, splits = opened
    grey, label = store.read(np.concatenate(splits[split]))
    grey = np.asarray(grey)[..., 0]
    if files is None:
        large = [Image.fromarray(one).resize((THING, THING)) for one in grey]
        return np.stack([np.asarray(x) for x in large]), label, list(DIGITS)
    return grey, label, list(GARMENTS)


def photographs() -> list[np.ndarray]:
    """Return scikit-learn's sample images, uint8 (H, W, 3)."""
    spec = importlib.util.find_spec("sklearn")
    assert spec is not None and spec.origin is not None
    folder = Path(spec.origin).parent / "datasets" / "images"
    names = ("china.jpg", "flower.jpg")
    return [np.asarray(Image.open(folder / name)) for name in names]


def compose(
    num: int, *, seed: int = 0, files: str | None = None, split: str = "train"
) -> Composed:
    """Return images of one to four things, each in a quarter of its own."""
    grey, label, names = things(files, split)
    photos, rng = photographs(), np.random.default_rng([seed, split == "test"])
    image = np.zeros((num, SIDE, SIDE, 3), np.uint8)
    mask, instance = np.zeros((2, num, SIDE, SIDE), np.uint8)
    count = np.zeros((num, len(names)), np.int64)
    boxes = np.zeros((num, 4, 4), np.float32)
    box_class = np.full((num, 4), -1)
    for i in range(num):
        photo = photos[rng.integers(len(photos))]
        y, x = (rng.integers(size - SIDE) for size in photo.shape[:2])
        image[i] = DIMMED * photo[y : y + SIDE, x : x + SIDE]
        quarters = rng.permutation(4)[: rng.integers(1, 5)].tolist()
        for n, quarter in enumerate(quarters):
            chosen = rng.integers(len(grey))
            thing, kind = grey[chosen], int(label[chosen])
            seen = thing >= SEEN
            top, left = (
                SIDE // 2 * place + rng.integers(SIDE // 2 - THING + 1)
                for place in divmod(quarter, 2)
            )
            where = i, slice(top, top + THING), slice(left, left + THING)
            image[where][seen] = thing[seen, None]
            mask[where][seen], instance[where][seen] = kind + 1, n + 1
            rows, columns = np.flatnonzero(seen.any(1)), np.flatnonzero(seen.any(0))
            boxes[i, n] = (
                left + columns[0],
                top + rows[0],
                left + columns[-1] + 1,
                top + rows[-1] + 1,
            )
            box_class[i, n] = kind
            count[i, kind] += 1
    return Composed(tuple(names), image, count, mask, instance, boxes, box_class)


def write(folder: Path, made: dict[str, Composed], *, numbers: bool = False) -> Path:
    """Write PNGs and a table, `list.csv`, with a column of each class.

    Args:
      folder: Folder to make.
      made: Split -> its images.
      numbers: Whether the columns count the things, in place of 0 and 1.
    """
    folder.mkdir(parents=True)
    table = folder / "list.csv"
    with table.open("w", newline="") as file:
        rows = csv.writer(file)
        names = next(iter(made.values())).names
        rows.writerow(["path", "split", *names])
        for split, some in made.items():
            (folder / split).mkdir()
            columns = some.count if numbers else some.present.astype(int)
            for i, values in enumerate(columns.tolist()):
                path = f"{split}/{i:06}.png"
                Image.fromarray(some.image[i]).save(folder / path, compress_level=1)
                rows.writerow([path, split, *values])
    return table


def write_with_masks(folder: Path, made: dict[str, Composed]) -> Path:
    """Write images and masks of each split, and `classes.txt`."""
    for split, some in made.items():
        for name, pixels in (("images", some.image), ("masks", some.mask)):
            (folder / name / split).mkdir(parents=True)
            for i, one in enumerate(pixels):
                path = folder / name / split / f"{i:06}.png"
                Image.fromarray(one).save(path, compress_level=1)
    names = ["photograph", *next(iter(made.values())).names]
    (folder / "classes.txt").write_text("\n".join(names) + "\n")
    return folder


def main() -> None:
    """Write training images, and a tenth as many to test."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--num", type=int, default=1000)
    parser.add_argument("--files")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--masks", action="store_true")
    given = parser.parse_args()
    sizes = {"train": given.num, "test": max(1, given.num // 10)}
    made = {
        split: compose(num, seed=given.seed, files=given.files, split=split)
        for split, num in sizes.items()
    }
    make = write_with_masks if given.masks else write
    print(make(given.out, made))


if __name__ == "__main__":
    main()
