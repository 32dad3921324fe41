"""Batch-wise writer of predicted boxes in COCO's results format."""

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from jaxtrain.data import files
from jaxtrain.data.files import UnreadableError
from jaxtrain.data.image_files import FileNames
from jaxtrain.data.read_files import read_unless_large
from jaxtrain.inference.model import TrainedModel
from jaxtrain.inference.pixels import MAX_PIXELS, size_of
from jaxtrain.inference.sinks import PredictionFile, Sink, opened
from jaxtrain.inference.stream import ImageBatch
from jaxtrain.plugins.detection.coco_ids import CocoIds, find_ids
from jaxtrain.plugins.detection.decoder import BoxDecoder
from jaxtrain.plugins.detection.found_boxes import Finder, FoundBoxes
from jaxtrain.plugins.segmentation import upright


def coco_results(
    path: Path, model: TrainedModel, names: FileNames, listing: Path | None, run: Path
) -> PredictionFile:
    """Return the output file of `--coco`.

    Args:
      path: File to write.
      model: Detection model of the run.
      names: Paths of the images.
      listing: File of `--coco-images`, or None.
      run: Directory of the run or model.

    Raises:
      UserError: The file of `--coco-images` cannot be read, or lacks an image.
    """
    ids = find_ids(names, _finder(model), listing, run)
    remark = f"{path}: image_id is {ids.origin}"
    return PredictionFile(partial(coco, path, model, ids), remark)


@contextlib.contextmanager
def coco(
    path: Path, model: TrainedModel, ids: CocoIds, renames: ExitStack
) -> Iterator[Sink]:
    """Yield a function that writes predicted boxes to the file of `--coco`."""
    decoder, finder = model.decoder, _finder(model)
    with opened("--coco", path, json_list, renames) as write:

        def write_all(batch: ImageBatch) -> None:
            for i, error in enumerate(batch.errors):
                if error is not None:
                    continue
                image = batch.images[i]
                with contextlib.suppress(UnreadableError):
                    size = size_of(image)
                    decoded = batch.results["decoded"]
                    found = decoder.prediction(decoded, i, size).boxes
                    if ids.on_stored:
                        data = read_unless_large(os.fsencode(image))
                        orientation = files.open_file(data, MAX_PIXELS).orientation
                        boxes = upright.stored_boxes(found.boxes, size, orientation)
                        found = found._replace(boxes=boxes)
                    write(results(found, os.fsencode(image), ids, finder.names))

        yield write_all


def _finder(model: TrainedModel) -> Finder:
    assert isinstance(model.decoder, BoxDecoder)
    return model.decoder.finder


@contextlib.contextmanager
def json_list(path: Path) -> Iterator[Callable[[list[Any]], None]]:
    """Yield a function that appends values to a JSON list in a file."""
    with path.open("w", encoding="utf-8") as file:
        started = False

        def write(values: list[Any]) -> None:
            nonlocal started
            for value in values:
                file.write(",\n" if started else "[\n")
                file.write(json.dumps(value, allow_nan=False, ensure_ascii=False))
                started = True

        yield write
        file.write("\n]\n" if started else "[]\n")


def results(
    found: FoundBoxes, name: bytes, ids: CocoIds, names: Sequence[str]
) -> list[dict[str, Any]]:
    """Return boxes in COCO's results format.

    Args:
      found: Boxes of an image.
      name: Path of the image file.
      ids: Ids of images and classes.
      names: Names of the classes.
    """
    text = name.decode("utf-8", "backslashreplace")
    entries = []
    for box, score, kind in zip(*found, strict=True):
        left, top, right, bottom = (round(x, 3) for x in box.tolist())
        entries.append(
            {
                "image_id": ids.images[name],
                "file_name": text,
                "category_id": ids.categories[kind],
                "category": names[kind],
                "bbox": [left, top, round(right - left, 3), round(bottom - top, 3)],
                "score": round(float(score), 6),
            }
        )
    return entries
