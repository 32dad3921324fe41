"""Composed images with boxes, as folders that COCO's and YOLO's readers know.

python -m tests.helpers.composed_boxes OUT [--num 1000] [--files IDX_DIR] [--seed 0]
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.helpers.composed import SIDE, Composed, compose


def write_coco(folder: Path, made: dict[str, Composed]) -> Path:
    """Write images and annotations/instances_*.json of each split; category ids from 1.

    Args:
      folder: Folder to make.
      made: Split, train, val or test, -> its images.
    """
    (folder / "annotations").mkdir(parents=True)
    for split, some in made.items():
        (folder / split).mkdir()
        for i, pixels in enumerate(some.image):
            path = folder / split / f"{i:06}.png"
            Image.fromarray(pixels).save(path, compress_level=1)
        place = folder / "annotations" / f"instances_{split}.json"
        place.write_text(json.dumps(coco_values(some)))
    return folder


def coco_values(some: Composed) -> dict[str, Any]:
    """Return what a file as COCO's instances holds of images."""
    annotations = []
    for image, number in np.argwhere(some.box_class >= 0).tolist():
        left, top, right, bottom = some.boxes[image, number].tolist()
        annotations.append(
            {
                "id": len(annotations) + 1,
                "image_id": image,
                "category_id": int(some.box_class[image, number]) + 1,
                "bbox": [left, top, right - left, bottom - top],
                "area": (right - left) * (bottom - top),
                "iscrowd": 0,
            }
        )
    return {
        "images": [
            {"id": i, "file_name": f"{i:06}.png", "height": SIDE, "width": SIDE}
            for i in range(len(some.image))
        ],
        "annotations": annotations,
        "categories": [{"id": i + 1, "name": n} for i, n in enumerate(some.names)],
    }


def write_yolo(folder: Path, made: dict[str, Composed]) -> Path:
    """Write images/SPLIT, labels/SPLIT and data.yaml."""
    for split, some in made.items():
        images, labels = folder / "images" / split, folder / "labels" / split
        images.mkdir(parents=True)
        labels.mkdir(parents=True)
        for i, pixels in enumerate(some.image):
            Image.fromarray(pixels).save(images / f"{i:06}.png", compress_level=1)
            lines = []
            for box, kind in zip(some.boxes[i], some.box_class[i], strict=True):
                if kind >= 0:
                    left, top, right, bottom = (box / SIDE).tolist()
                    middle = (left + right) / 2, (top + bottom) / 2
                    numbers = *middle, right - left, bottom - top
                    lines.append(f"{kind} " + " ".join(map(repr, numbers)))
            (labels / f"{i:06}.txt").write_text("\n".join(lines))
    names = "\n".join(f"  {i}: {n}" for i, n in enumerate(made["train"].names))
    (folder / "data.yaml").write_text(f"names:\n{names}\n")
    return folder


def main() -> None:
    """Write training images, and a tenth as many to validate and to test."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--num", type=int, default=1000)
    parser.add_argument("--files")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    few = max(1, given.num // 10)

    def made(num: int, seed: int, split: str) -> Composed:
        return compose(num, seed=seed, files=given.files, split=split)

    seed = given.seed
    splits = {
        "train": made(given.num, seed, "train"),
        "val": made(few, seed + 1, "train"),
        "test": made(few, seed, "test"),
    }
    print(write_coco(given.out, splits))


if __name__ == "__main__":
    main()
