"""Where found boxes go, batch by batch: pictures, and a file as COCO's results."""

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from PIL import Image

from jaxtrain.data import files, upright
from jaxtrain.data.files import UnreadableError
from jaxtrain.data.image_files import FileNames
from jaxtrain.data.read_files import read_unless_large
from jaxtrain.inference.coco_ids import CocoIds
from jaxtrain.inference.found_boxes import boxes_of, results
from jaxtrain.inference.model import TrainedModel
from jaxtrain.inference.pixels import MAX_PIXELS, size_of
from jaxtrain.inference.sinks import Sink, of_each, opened
from jaxtrain.inference.stream import ImageBatch
from jaxtrain.tasks.base import SHOWN_SCORE
from jaxtrain.tasks.pictures import labelled_boxes


@contextlib.contextmanager
def pictures(
    path: Path, names: FileNames, model: TrainedModel, renames: ExitStack
) -> Iterator[Sink]:
    """Write images with their boxes into the folder of `--pictures`."""
    finder = model.finder
    assert finder is not None

    def write(batch: ImageBatch, i: int, place: str) -> None:
        data = read_unless_large(os.fsencode(batch.images[i]))
        try:
            if isinstance(data, OSError):
                return
            file = files.open_file(data, MAX_PIXELS, model.description.white_level)
            pixels = file.decode(3)
        except UnreadableError:  # It was another file a moment ago.
            return
        size = file.height, file.width
        found = boxes_of(batch.found["found"], i, model.description, size)
        found = found.above(SHOWN_SCORE)
        texts = [
            f"{finder.names[kind]} {score:.2f}"
            for kind, score in zip(found.classes, found.scores, strict=True)
        ]
        picture = labelled_boxes(pixels, found.boxes, found.classes, texts)
        Image.fromarray(picture).save(f"{place}.png", compress_level=1)

    yield of_each("--pictures", path, names, write, renames)


@contextlib.contextmanager
def coco(
    path: Path, model: TrainedModel, ids: CocoIds, renames: ExitStack
) -> Iterator[Sink]:
    """Write all boxes into the file of `--coco`, a list as COCO's results."""
    finder = model.finder
    assert finder is not None
    with opened("--coco", path, json_list, renames) as write:

        def write_all(batch: ImageBatch) -> None:
            for i, error in enumerate(batch.errors):
                if error is not None:
                    continue
                image = batch.images[i]
                with contextlib.suppress(UnreadableError):
                    size = size_of(image)
                    found = boxes_of(batch.found["found"], i, model.description, size)
                    if ids.of_stored:
                        data = read_unless_large(os.fsencode(image))
                        turned = files.open_file(data, MAX_PIXELS).orientation
                        boxes = upright.stored_boxes(found.boxes, size, turned)
                        found = found._replace(boxes=boxes)
                    write(results(found, os.fsencode(image), ids, finder.names))

        yield write_all


@contextlib.contextmanager
def json_list(path: Path) -> Iterator[Callable[[list[Any]], None]]:
    """Write the values of one JSON list, a line each."""
    with path.open("w", encoding="utf-8") as file:
        begun = False

        def write(values: list[Any]) -> None:
            nonlocal begun
            for value in values:
                file.write(",\n" if begun else "[\n")
                file.write(json.dumps(value, allow_nan=False, ensure_ascii=False))
                begun = True

        yield write
        file.write("\n]\n" if begun else "[]\n")
