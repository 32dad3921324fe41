"""Images for an export: to check the file on, and to tell ranges for int8."""

import os
from pathlib import Path

import numpy as np

from jaxtrain.config.recipe import read_run
from jaxtrain.data import sources
from jaxtrain.data.files import UnreadableError
from jaxtrain.data.image_source import Unreadable
from jaxtrain.errors import UserError
from jaxtrain.inference.found import find
from jaxtrain.inference.model import TrainedModel
from jaxtrain.inference.pixels import to_pixels


def of_run(
    model: TrainedModel, workdir: Path, num_checked: int, num_trained: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return images of the data of a run, spread evenly over them.

    Args:
      model: that takes them.
      workdir: of the run.
      num_checked: images of the validation split; of the test split if there is none.
      num_trained: images of the train split.

    Returns:
      Both, uint8 (n, H, W, C).

    Raises:
      UserError: the data of the run are not there.
    """
    config = read_run(workdir)
    try:
        splits = sources.load(config.data, config.seed)
    except (OSError, ValueError) as error:
        raise UserError(
            f"--workdir {workdir}: its data cannot be read ({error}); give a folder of "
            "such images, --images DIR"
        ) from None
    checked = splits.validation or splits.test
    return _some(model, checked, num_checked), _some(model, splits.train, num_trained)


def of_folder(model: TrainedModel, folder: Path, num: int) -> np.ndarray:
    """Return images of the files in a folder and those below it, spread evenly.

    Raises:
      UserError: there are none, or one cannot be read.
    """
    try:
        names, found = find([str(folder)]), []
    except UserError as error:
        raise UserError(f"--images {error}") from None
    for path in (os.fsdecode(names[i]) for i in _spread(len(names), num)):
        try:
            fit = model.description.fit
            found.append(to_pixels(path, model.image_shape, fit))
        except UnreadableError as error:
            raise UserError(f"--images {folder}: {path}: {error}") from None
    return np.stack(found)


def _some(model: TrainedModel, source: sources.Source, num: int) -> np.ndarray:
    if not num:
        return np.zeros((0, *model.image_shape), np.uint8)
    unreadable: list[Unreadable] = []
    images = source.read(_spread(len(source), num), unreadable=unreadable)["image"]
    bad = {u.index for u in unreadable}
    fit = model.description.fit
    return np.stack(
        [
            to_pixels(np.asarray(image), model.image_shape, fit)
            for index, image in zip(_spread(len(source), num), images, strict=True)
            if index not in bad
        ]
    )


def _spread(length: int, num: int) -> np.ndarray:
    """Return `num` indices at most, as far from each other as there is room for."""
    return np.unique(np.linspace(0, max(0, length - 1), min(num, length), dtype=int))
