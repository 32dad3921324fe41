"""Output directory of predicted masks."""

import contextlib
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from jaxtrain.data.fit import Fit
from jaxtrain.data.image_files import FileNames
from jaxtrain.data.read_files import read_unless_large
from jaxtrain.inference.sinks import PredictionFile, Sink, per_image_sink
from jaxtrain.inference.stream import ImageBatch
from jaxtrain.plugins.segmentation.class_maps import draw_masks


def mask_files(path: Path, names: FileNames, fit: Fit) -> PredictionFile:
    """Output of `--masks`: PNG files of predicted masks and of overlays on images.

    Args:
      path: Directory to create.
      names: Names of the image files.
      fit: Resize and crop that convert an image to the model's input.
    """

    def write(batch: ImageBatch, i: int, place: str) -> None:
        data = read_unless_large(os.fsencode(batch.images[i]))
        # The file was readable before the prediction, but may have changed since.
        if isinstance(data, OSError):
            raise data
        drawn = draw_masks(data, batch.results["outputs"][i], fit)
        for picture, ending in zip(drawn, (".png", ".overlay.png"), strict=True):
            picture.save(f"{place}{ending}", compress_level=1)

    @contextlib.contextmanager
    def opened(renames: ExitStack) -> Iterator[Sink]:
        yield per_image_sink("--masks", path, names, write, renames)

    return PredictionFile(opened)
