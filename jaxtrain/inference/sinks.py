"""Writers of prediction files, batch by batch.

A sink is a function that writes the predictions of one batch. Files have temporary
names until the shared exit stack `renames` closes and renames them, so that incomplete
files never have their final names.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from jaxtrain.data import files
from jaxtrain.data.files import UnreadableError
from jaxtrain.data.image_files import FileNames
from jaxtrain.data.read_files import read_unless_large
from jaxtrain.inference import gradcam, tables
from jaxtrain.inference.image_paths import common_folder
from jaxtrain.inference.model import TrainedModel
from jaxtrain.inference.pixels import MAX_PIXELS
from jaxtrain.inference.predict import prediction, rows, table_columns
from jaxtrain.inference.stream import ImageBatch
from jaxtrain.records.atomic_output import atomic_output, reported
from jaxtrain.trees import by_path

Sink = Callable[[ImageBatch], None]


class PredictionFile(NamedTuple):
    """An output file or directory of `main.py predict`.

    Attributes:
      open: Function (`renames`) -> context manager that opens the file and yields its
        sink.
      remark: Message to print after the file is written. None prints nothing.
    """

    open: Callable[[ExitStack], AbstractContextManager[Sink]]
    remark: str | None = None


@contextlib.contextmanager
def table(
    path: Path, model: TrainedModel, topk: int, renames: ExitStack
) -> Iterator[Sink]:
    """Open the table of `--out`; yield a sink that writes one row per image."""
    open_table = tables.TABLES[path.suffix.lower()]
    columns = table_columns(model, topk)
    with opened(
        "--out", path, lambda partial: open_table(partial, columns), renames
    ) as write:
        yield lambda batch: write(list(rows(model, batch, topk)))


@contextlib.contextmanager
def features(path: Path, num: int, width: int, renames: ExitStack) -> Iterator[Sink]:
    """Open the file of `--features`; yield a sink for features.

    The features of images with an error are NaN.
    """
    with opened(
        "--features",
        path,
        lambda partial: tables.npy_file(partial, (num, width)),
        renames,
    ) as write_rows:

        def write(batch: ImageBatch) -> None:
            rows = batch.results["features"].astype(np.float32)
            rows[[error is not None for error in batch.errors]] = np.nan
            write_rows(rows)

        yield write


@contextlib.contextmanager
def overlays(
    path: Path, names: FileNames, model: TrainedModel, renames: ExitStack
) -> Iterator[Sink]:
    """Create the directory of `--explain`; yield a sink for Grad-CAM overlays."""

    def write(batch: ImageBatch, i: int, stem: str) -> None:
        result = prediction(model, batch, i)
        assert result is not None
        heat = batch.results["map"][i]
        picture = gradcam.overlay(batch.pixels[i], heat, result.caption())
        # Level 1 takes 3 ms per image. Pillow's default of 6 takes 11 ms, and its files
        # are only one sixth smaller.
        picture.save(f"{stem}.png", compress_level=1)

    yield per_image_sink("--explain", path, names, write, renames)


@contextlib.contextmanager
def outputs(path: Path, names: FileNames, renames: ExitStack) -> Iterator[Sink]:
    """Create the directory of `--outputs`; yield a sink for raw outputs."""

    def write(batch: ImageBatch, i: int, stem: str) -> None:
        arrays = batch.results["outputs"]
        if isinstance(arrays, np.ndarray):
            np.save(f"{stem}.npy", arrays[i])
        else:
            heads = {head: x[i] for head, x in by_path(arrays).items()}
            np.savez(f"{stem}.npz", **heads)

    yield per_image_sink("--outputs", path, names, write, renames)


@contextlib.contextmanager
def pictures(
    path: Path, names: FileNames, model: TrainedModel, renames: ExitStack
) -> Iterator[Sink]:
    """Create the directory of `--pictures`; yield a sink for annotated images."""

    def write(batch: ImageBatch, i: int, stem: str) -> None:
        data = read_unless_large(os.fsencode(batch.images[i]))
        try:
            if isinstance(data, OSError):
                return
            file = files.open_file(data, MAX_PIXELS, model.description.white_level)
            pixels = file.decode(3)
        except UnreadableError:  # The file has changed since the prediction.
            return
        size = file.height, file.width
        result = model.decoder.prediction(batch.results["decoded"], i, size)
        picture = result.draw(pixels)
        if picture is not None:
            Image.fromarray(picture).save(f"{stem}.png", compress_level=1)

    yield per_image_sink("--pictures", path, names, write, renames)


def per_image_sink(
    option: str,
    path: Path,
    names: FileNames,
    write: Callable[[ImageBatch, int, str], None],
    renames: ExitStack,
) -> Sink:
    """Create a directory; return a sink that writes one file per image into it.

    Args:
      option: Option that names the directory, for messages.
      path: Directory to create, with the directory structure of the images.
      names: Paths of the images.
      write: Function (batch, index of an image in the batch, path without extension)
        that writes the file of the image.
      renames: Exit stack that renames the complete directory to `path`.
    """
    partial = renames.enter_context(atomic_output(option, path, folder=True))
    folder, common = os.fsencode(partial), common_folder(names)

    def write_all(batch: ImageBatch) -> None:
        with reported(option, path):
            for i in (i for i, error in enumerate(batch.errors) if error is None):
                image = os.path.abspath(os.fsencode(batch.images[i]))
                stem = os.path.join(folder, os.path.relpath(image, common))
                os.makedirs(os.path.dirname(stem), exist_ok=True)
                write(batch, i, os.fsdecode(stem))

    return write_all


@contextlib.contextmanager
def opened(
    option: str,
    path: Path,
    make: Callable[[Path], AbstractContextManager[Callable[[Any], Any]]],
    renames: ExitStack,
) -> Iterator[Callable[[Any], None]]:
    """Open an output file with a temporary name; yield a function that writes rows.

    The file is closed before `renames` renames files, as closing can fail on a full
    disk.

    Args:
      option: Option that names the file, for messages.
      path: Final path of the file.
      make: Function (temporary path) -> context manager that yields a function to write
        rows.
      renames: Exit stack that renames the complete file to `path`.
    """
    file = ExitStack()
    partial = renames.enter_context(atomic_output(option, path))
    with reported(option, path):
        write_rows = file.enter_context(make(partial))

    def write(rows: Any) -> None:
        with reported(option, path):
            write_rows(rows)

    try:
        yield write
    except BaseException:  # Includes exceptions from signals.
        with contextlib.suppress(OSError):
            file.close()
        raise
    with reported(option, path):
        file.close()
