"""Images for an export: to check the file on, and to tell ranges for int8."""

import os
from pathlib import Path

import numpy as np

from jaxtrain.config.recipe import CONFIG, is_run, read_run
from jaxtrain.data import sources
from jaxtrain.data.files import UnreadableError
from jaxtrain.data.image_source import Unreadable
from jaxtrain.errors import UserError
from jaxtrain.inference.found import find
from jaxtrain.inference.model import TrainedModel
from jaxtrain.inference.pixels import AnyImage, to_pixels

# Images of a check, and those that tell the ranges.
CHECKED = 64
CALIBRATION = 256


def of(
    model: TrainedModel, workdir: Path, given: Path | None, *, calibration: int = 0
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return images of a run, or of a folder of images, as `of_run` does.

    Args:
      model: that takes them.
      workdir: Folder of the model.
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
      workdir: of the run.
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
        names, found = find([str(folder)], kind=model.kind), []
    except UserError as error:
        raise UserError(f"--images {error}") from None
    num = calibration or CHECKED
    for path in (os.fsdecode(names[i]) for i in _spread(len(names), num)):
        try:
            found.append(_to_pixels(model, path))
        except UnreadableError as error:
            raise UserError(f"--images {folder}: {path}: {error}") from None
    images = np.stack(found)
    checked = images[:: max(1, len(images) // CHECKED)][:CHECKED]
    return checked, images if calibration else None


def _some(model: TrainedModel, source: sources.Source, num: int) -> np.ndarray:
    unreadable: list[Unreadable] = []
    indices = _spread(len(source), num)
    images = source.read(indices, unreadable=unreadable)["image"]
    bad = {u.index for u in unreadable}
    return np.stack(
        [
            _to_pixels(model, np.asarray(image))
            for index, image in zip(indices, images, strict=True)
            if index not in bad
        ]
    )


def _to_pixels(model: TrainedModel, image: AnyImage) -> np.ndarray:
    about = model.description
    return to_pixels(image, about.stored_shape, about.fit, sound=about.sound)


def _spread(length: int, num: int) -> np.ndarray:
    """Return `num` indices at most, as far from each other as there is room for."""
    return np.unique(np.linspace(0, max(0, length - 1), min(num, length), dtype=int))
