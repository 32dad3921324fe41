"""Images for an export: to check the file on, and to tell ranges for int8.

Of a model that predicts whole images in windows they are such windows, which the file
takes.
"""

import os
from pathlib import Path

import numpy as np

from jaxtrain.config.recipe import CONFIG, is_run, read_run
from jaxtrain.console import tell
from jaxtrain.data import sources
from jaxtrain.data.defects import Unreadable
from jaxtrain.data.files import UnreadableError
from jaxtrain.errors import UserError
from jaxtrain.inference.found import find
from jaxtrain.inference.model import TrainedModel
from jaxtrain.inference.pixels import AnyImage, to_pixels

# Images of a check, and those that tell the ranges.
CHECKED = 64
CALIBRATION = 256
# Images that are read at once.
READ = 64


def of(
    model: TrainedModel, workdir: Path, given: Path | None, *, calibration: int = 0
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return images of a run, or of a folder of images, as `of_run` does.

    Args:
      model: that takes them.
      given: Folder of images, or of another run; None stands for `workdir`.
      calibration: Number of images that are wanted to tell ranges; 0 for none.
    """
    if given is None or (given / CONFIG).is_file():
        return of_run(model, given or workdir, calibration=calibration)
    return of_folder(model, given, calibration=calibration)


def of_run(
    model: TrainedModel, workdir: Path, *, calibration: int = 0
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return images of the data of a run, spread evenly over them.

    Args:
      model: that takes them.
      calibration: Number of images that are wanted to tell ranges; 0 for none.

    Returns:
      Images to check on, of the validation split, or of the test split if there is
      none; and those that tell ranges, of the train split. Uint8 (n, H, W, C).

    Raises:
      UserError: the data of the run are not there.
    """
    if not is_run(workdir):
        raise UserError(
            f"--workdir {workdir} is a model without data: give a folder of images to "
            "check the file on, --images DIR"
        )
    config = read_run(workdir)
    try:
        splits = sources.load(config.data, config.seed)
    except (OSError, ValueError) as error:
        raise UserError(
            f"--workdir {workdir}: its data cannot be read ({error}); give a folder of "
            "such images, --images DIR"
        ) from None
    checked = _some(model, splits.validation or splits.test, CHECKED)
    return checked, _some(model, splits.train, calibration) if calibration else None


def of_folder(
    model: TrainedModel, folder: Path, *, calibration: int = 0
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return images of the files in a folder and those below it, as `of_run` does.

    Raises:
      UserError: there are none, or one cannot be read.
    """
    try:
        unread, found = list[bytes](), []
        names = find([str(folder)], kind=model.kind, unread=unread)
    except UserError as error:
        raise UserError(f"--images {error}") from None
    for remark in model.kind.passed_over(unread):
        tell(f"--images {folder}: {remark.title}: {remark.text}")
    num = calibration or CHECKED
    for index, window in _choose(model, len(names), num):
        path = os.fsdecode(names[index])
        try:
            found.append(_to_pixels(model, path, window))
        except UnreadableError as error:
            raise UserError(f"--images {folder}: {path}: {error}") from None
    images = np.stack(found)
    checked = images[:: max(1, len(images) // CHECKED)][:CHECKED]
    return checked, images if calibration else None


def _some(model: TrainedModel, source: sources.Source, num: int) -> np.ndarray:
    chosen, found = _choose(model, len(source), num), []
    for start in range(0, len(chosen), READ):
        some, unreadable = chosen[start : start + READ], list[Unreadable]()
        indices = np.array([index for index, _ in some])
        images = source.read(indices, unreadable=unreadable)["image"]
        bad = {u.index for u in unreadable}
        found += [
            _to_pixels(model, np.asarray(image), window)
            for (index, window), image in zip(some, images, strict=True)
            if index not in bad
        ]
    return np.stack(found)


def _choose(model: TrainedModel, length: int, num: int) -> list[tuple[int, int]]:
    """Return numbers of images, and of the window of each that the model is shown."""
    indices = spread(length, num)
    image, window = model.description.grid.choose(len(indices), num)
    return list(zip(indices[image].tolist(), window.tolist(), strict=True))


def _to_pixels(model: TrainedModel, image: AnyImage, window: int) -> np.ndarray:
    about = model.description
    whole = to_pixels(image, about.whole_shape, about.fit, input=about.input)
    return about.grid.cut(whole[None], np.array([window]))[0]


def spread(length: int, num: int) -> np.ndarray:
    """Return `num` indices at most, as far from each other as there is room for."""
    return np.unique(np.linspace(0, max(0, length - 1), min(num, length), dtype=int))
