"""Images for the check of an exported file, and for calibration of int8 ranges.

A file of a model with sliding windows takes single windows, so windows are returned.
"""

import os
from pathlib import Path

import numpy as np

from jaxtrain.config.recipe import CONFIG, is_run, read_run
from jaxtrain.console import print_stderr
from jaxtrain.data import sources
from jaxtrain.data.defects import Unreadable
from jaxtrain.data.files import UnreadableError
from jaxtrain.errors import UserError
from jaxtrain.inference.image_paths import expand_paths
from jaxtrain.inference.model import TrainedModel
from jaxtrain.inference.pixels import AnyImage, to_pixels

# Number of images for the check, and default number for calibration.
CHECKED = 64
CALIBRATION = 256
# Number of images to read at a time.
READ = 64


def load(
    model: TrainedModel, workdir: Path, given: Path | None, *, calibration: int = 0
) -> tuple[np.ndarray, np.ndarray | None]:
    """Load images from the data of a run, or from a directory; see `load_from_run`.

    Args:
      model: Model to export.
      workdir: Directory of the model's run.
      given: Directory of images, or of another run. Defaults to `workdir`.
      calibration: Number of images for calibration; 0 for none.
    """
    if given is None or (given / CONFIG).is_file():
        return load_from_run(model, given or workdir, calibration=calibration)
    return load_from_folder(model, given, calibration=calibration)


def load_from_run(
    model: TrainedModel, workdir: Path, *, calibration: int = 0
) -> tuple[np.ndarray, np.ndarray | None]:
    """Load evenly spaced images from the data of a run.

    Args:
      model: Model to export.
      workdir: Directory of the run.
      calibration: Number of images for calibration; 0 for none.

    Returns:
      Images for the check, from the validation split if there is one, else from the
      test split; and images for calibration, from the training split, or None. Both are
      uint8 (n, H, W, C).

    Raises:
      UserError: The data of the run are missing.
    """
    if not is_run(workdir):
        raise UserError(
            f"--workdir {workdir} is a model without data: give --images DIR, a folder "
            "of images to check the exported file with"
        )
    config = read_run(workdir)
    try:
        splits = sources.load(config.data, config.seed)
    except (OSError, ValueError) as error:
        raise UserError(
            f"--workdir {workdir}: the data of the run cannot be read ({error}): give "
            "--images DIR, a folder of images to check the exported file with"
        ) from None
    checked = _sample(model, splits.validation or splits.test, CHECKED)
    return checked, _sample(model, splits.train, calibration) if calibration else None


def load_from_folder(
    model: TrainedModel, folder: Path, *, calibration: int = 0
) -> tuple[np.ndarray, np.ndarray | None]:
    """Load evenly spaced image files below a directory.

    Args:
      model: Model to export.
      folder: Directory of the images.
      calibration: Number of images for calibration; 0 for none.

    Returns:
      Images for the check, and images for calibration, or None; see `load_from_run`.

    Raises:
      UserError: The directory has no images, or an image is unreadable.
    """
    try:
        unread, images_read = list[bytes](), []
        names = expand_paths([str(folder)], kind=model.kind, unread=unread)
    except UserError as error:
        raise UserError(f"--images {error}") from None
    for remark in model.kind.passed_over(unread):
        print_stderr(f"--images {folder}: {remark.title}: {remark.text}")
    num = calibration or CHECKED
    for index, window in _choose(model, len(names), num):
        path = os.fsdecode(names[index])
        try:
            images_read.append(_to_pixels(model, path, window))
        except UnreadableError as error:
            raise UserError(f"--images {folder}: {path}: {error}") from None
    images = np.stack(images_read)
    checked = images[:: max(1, len(images) // CHECKED)][:CHECKED]
    return checked, images if calibration else None


def _sample(model: TrainedModel, source: sources.Source, num: int) -> np.ndarray:
    chosen, images_read = _choose(model, len(source), num), []
    for start in range(0, len(chosen), READ):
        chunk, unreadable = chosen[start : start + READ], list[Unreadable]()
        indices = np.array([index for index, _ in chunk])
        images = source.read(indices, unreadable=unreadable)["image"]
        bad = {u.index for u in unreadable}
        images_read += [
            _to_pixels(model, np.asarray(image), window)
            for (index, window), image in zip(chunk, images, strict=True)
            if index not in bad
        ]
    return np.stack(images_read)


def _choose(model: TrainedModel, length: int, num: int) -> list[tuple[int, int]]:
    """Return pairs of an image index and the index of a window in that image."""
    indices = spread(length, num)
    image, window = model.description.grid.choose(len(indices), num)
    return list(zip(indices[image].tolist(), window.tolist(), strict=True))


def _to_pixels(model: TrainedModel, image: AnyImage, window: int) -> np.ndarray:
    about = model.description
    pixels = to_pixels(image, about.whole_shape, about.fit, input=about.input)
    return about.grid.cut(pixels[None], np.array([window]))[0]


def spread(length: int, num: int) -> np.ndarray:
    """Return at most `num` evenly spaced indices from 0 to `length` - 1, inclusive."""
    return np.unique(np.linspace(0, max(0, length - 1), min(num, length), dtype=int))
