"""Checks of boxes: boxes lost to cropping or resizing, and rare classes."""

import numpy as np

from jaxtrain.config import DataConfig
from jaxtrain.data.boxes import MIN_AREA, NAMES, NUM_BOXES
from jaxtrain.data.image_source import Source
from jaxtrain.errors import counted
from jaxtrain.plugins.doctor.checks import FEW, named
from jaxtrain.plugins.doctor.report import Finding
from jaxtrain.plugins.doctor.scan import SPLITS, Scan


def check_boxes(scan: Scan, train: Source, config: DataConfig) -> list[Finding]:
    """Report boxes that are cropped away or too small, and classes with few boxes.

    Args:
      scan: Scan of the data set.
      train: Training split of the run.
      config: `data` section of the config; without an image size, lost boxes are not
        reported.
    """
    if NUM_BOXES not in train.facts:
        return []
    found: list[Finding] = []
    listed, seen = scan.boxes.sum(0)
    lost, num_listed = int((listed - seen).sum()), int(listed.sum())
    trained, left = scan.boxes[SPLITS.index("train")]
    hint = ""
    if config.image_size is not None and lost:
        hint = "Raise data.image_size"
        if config.fit[-1] == "center":
            hint += ", or use the full image with data.crop_mode = border"
        hint += "."
        title = (
            f"{lost:,} of {counted(num_listed, 'box', 'boxes')} cropped, or smaller "
            f"than {MIN_AREA:g} square pixels, with data.image_size = "
            f"{config.image_size}"
        )
        found.append(Finding("boxes_lost", "warning", title, hint=hint))
    else:
        left = trained
    names = np.array(train.facts[NAMES], object)
    # Remarks of the data set already report classes without training boxes.
    none = (left == 0) & train.strata().any(0)
    unseen, few = names[none].tolist(), names[(left > 0) & (left < FEW)].tolist()
    if unseen:
        what = "without visible boxes in training"
        found.append(named("boxes_unseen", "warning", unseen, what, hint))
    if few:
        what = f"with fewer than {FEW} training boxes"
        found.append(named("boxes_few", "warning", few, what))
    return found
