"""Where predictions go, batch by batch: each target is written whole or not at all.

They get their names when `renames` ends, which all of them share.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrain.data.image_files import FileNames
from jaxtrain.inference import overlay
from jaxtrain.inference.feature_file import FeatureFile
from jaxtrain.inference.found import common_folder
from jaxtrain.inference.predict import Predicted, TableLayout
from jaxtrain.inference.tables import open_table
from jaxtrain.records.whole import reported, whole
from jaxtrain.trees import by_path

Sink = Callable[[Predicted], None]


@contextlib.contextmanager
def table(
    path: Path, names: FileNames, layout: TableLayout, renames: ExitStack
) -> Iterator[Sink]:
    """Write rows into the file of `--out`."""

    def make(partial: Path) -> Any:
        return open_table(partial, path.suffix, layout.columns)

    with _opened("--out", path, make, renames) as rows:
        yield lambda batch: rows.write(list(layout.rows(names, batch)))


@contextlib.contextmanager
def features(path: Path, num: int, width: int, renames: ExitStack) -> Iterator[Sink]:
    """Write features into the file of `--features`; NaN where there is no image."""

    def make(partial: Path) -> Any:
        return FeatureFile(partial, (num, width))

    with _opened("--features", path, make, renames) as file:

        def write(batch: Predicted) -> None:
            rows = batch.found["features"].astype(np.float32)
            rows[[error is not None for error in batch.errors]] = np.nan
            file.write(rows)

        yield write


@contextlib.contextmanager
def overlays(
    path: Path, names: FileNames, class_names: Sequence[str], renames: ExitStack
) -> Iterator[Sink]:
    """Write pictures into the folder of `--explain`, with class and probability."""
    partial = renames.enter_context(whole("--explain", path, folder=True))
    places = Places(partial, names)

    def write(batch: Predicted) -> None:
        with reported("--explain", path):
            for i, heat in enumerate(batch.found["map"]):
                if batch.errors[i] is None:
                    number, prob = batch.found["index"][i, 0], batch.found["prob"][i, 0]
                    # The probability first: a long name is cut.
                    caption = f"{100 * prob:.1f}% {class_names[number]}"
                    picture = overlay.draw(batch.pixels[i], heat, caption)
                    place = places.of(batch.start + i, ".png")
                    # Pillow's own 6 takes 11 ms, not 3, for files a sixth smaller.
                    picture.save(place, compress_level=1)

    yield write


@contextlib.contextmanager
def outputs(path: Path, names: FileNames, renames: ExitStack) -> Iterator[Sink]:
    """Write arrays into the folder of `--outputs`: a file of each image."""
    partial = renames.enter_context(whole("--outputs", path, folder=True))
    places = Places(partial, names)

    def write(batch: Predicted) -> None:
        found = batch.found["outputs"]
        with reported("--outputs", path):
            for i in (i for i, error in enumerate(batch.errors) if error is None):
                if isinstance(found, np.ndarray):
                    np.save(places.of(batch.start + i, ".npy"), found[i])
                else:
                    arrays = {head: x[i] for head, x in by_path(found).items()}
                    np.savez(places.of(batch.start + i, ".npz"), **arrays)

    yield write


class Places:
    """Files in a folder, placed as their images are below the common folder."""

    def __init__(self, folder: Path, names: FileNames):
        self._folder, self._names = os.fsencode(folder), names
        self._common = common_folder(names)

    def of(self, index: int, ending: str) -> str:
        """Return the path for an image, with this ending; its folder is made."""
        image = os.path.abspath(self._names[index])
        path = os.path.join(self._folder, os.path.relpath(image, self._common))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return os.fsdecode(path) + ending


class _Reported:
    """Passes on to a file, whose errors name the option."""

    def __init__(self, file: Any, option: str, path: Path):
        self._file, self._of = file, (option, path)

    def write(self, rows: Any) -> None:
        with reported(*self._of):
            self._file.write(rows)


@contextlib.contextmanager
def _opened(
    option: str, path: Path, make: Callable[[Path], Any], renames: ExitStack
) -> Iterator[_Reported]:
    """Open what has `write` and `close`, under another name until `renames` ends.

    So all files are closed, which a full disk may forbid, before the first is renamed.
    """
    partial = renames.enter_context(whole(option, path))
    with reported(option, path):
        file = make(partial)
    try:
        yield _Reported(file, option, path)
    except BaseException:  # A signal, too.
        with contextlib.suppress(OSError):
            file.close()
        raise
    with reported(option, path):
        file.close()
