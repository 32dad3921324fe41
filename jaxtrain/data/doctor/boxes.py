"""Boxes that the model does not see, and classes of few."""

import numpy as np

from jaxtrain.config import DataConfig
from jaxtrain.data.boxes import MIN_AREA, NAMES, NUM_BOXES
from jaxtrain.data.doctor.checks import FEW, NUM_NAMED
from jaxtrain.data.doctor.report import Finding, Level
from jaxtrain.data.doctor.scan import SPLITS, Scan
from jaxtrain.data.image_source import Source
from jaxtrain.errors import counted


def check_boxes(scan: Scan, train: Source, config: DataConfig) -> list[Finding]:
    """Report boxes that are cut off or too small, and classes of few in training.

    Args:
      scan: Scan of the set.
      train: The training split.
      config: Data section of the run; without a size all boxes are seen.
    """
    if NUM_BOXES not in train.facts:
        return []
    found: list[Finding] = []
    listed, seen = scan.boxes.sum(0)
    lost, whole = int((listed - seen).sum()), int(listed.sum())
    trained, left = scan.boxes[SPLITS.index("train")]
    if config.image_size is not None and lost:
        title = (
            f"{lost:,} of {counted(whole, 'box', 'boxes')} cut off, or of less than "
            f"{MIN_AREA:g} square pixels, with data.image_size = {config.image_size}"
        )
        found.append(Finding("boxes_lost", "warning", title))
    else:
        left = trained
    few = (left > 0) & (left < FEW)
    # Of classes that other splits alone have, the remarks of the set say so.
    unseen = (left == 0) & train.strata().any(0)
    cases: tuple[tuple[str, Level, np.ndarray, str], ...] = (
        ("boxes_unseen", "error", unseen, "of which training shows no box"),
        ("boxes_few", "warning", few, f"of fewer than {FEW} boxes to train"),
    )
    for kind, level, which, what in cases:
        names = [train.facts[NAMES][i] for i in np.flatnonzero(which)]
        if names:
            more = len(names) - NUM_NAMED
            title = f"{counted(len(names), 'class', 'classes')} {what}: "
            title += ", ".join(names[:NUM_NAMED])
            title += f" and {more} more" if more > 0 else ""
            found.append(Finding(kind, level, title))
    return found
