"""Where predictions go, batch by batch: each target is written whole or not at all.

They get their names when `renames` ends, which all of them share.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrain.data.image_files import FileNames
from jaxtrain.inference.feature_file import FeatureFile
from jaxtrain.inference.overlay import Overlays
from jaxtrain.inference.predict import Predicted, TableLayout
from jaxtrain.inference.tables import open_table
from jaxtrain.records.whole import reported, whole

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
    drawn = Overlays(partial, names)

    def write(batch: Predicted) -> None:
        with reported("--explain", path):
            for i, heat in enumerate(batch.found["map"]):
                if batch.errors[i] is None:
                    number, prob = batch.found["index"][i, 0], batch.found["prob"][i, 0]
                    # The probability first: a long name is cut.
                    caption = f"{100 * prob:.1f}% {class_names[number]}"
                    drawn.write(batch.start + i, batch.pixels[i], heat, caption)

    yield write


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
