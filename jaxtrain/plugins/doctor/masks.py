"""Checks of masks and other dense targets."""

import numpy as np

from jaxtrain.config import Config
from jaxtrain.data.image_source import Source
from jaxtrain.data.pixel_classes import PIXEL_CLASSES
from jaxtrain.plugins.doctor.checks import named
from jaxtrain.plugins.doctor.report import Finding, Level, of_rows
from jaxtrain.plugins.doctor.scan import SPLITS, Scan

# Classes with a smaller fraction of the training pixels are rare.
RARE = 1e-3
# Segmentation losses in which the weight of a class does not depend on its pixel count.
BALANCED = ("dice", "cross_entropy_dice", "lovasz")


def check_dense_targets(scan: Scan, train: Source, config: Config) -> list[Finding]:
    """Report targets that do not fit their images, and classes with few pixels.

    Args:
      scan: Scan of the data set.
      train: Training split of the run.
      config: Config of the run.
    """
    bad, most = scan.bad_targets, config.data.max_bad_fraction
    over = scan.over_limit([*bad, *scan.unreadable], most)
    level: Level = "error" if over else "warning"
    title = "{} whose target does not fit"
    if over:
        title += f"; more of a split than data.max_bad_fraction = {most}"
    found = of_rows("target_unfit", level, title, [*bad], bad)
    names, loss = (
        train.facts.get(PIXEL_CLASSES, ()),
        config.task.arguments().get("loss"),
    )
    hint = (
        ""
        if loss in BALANCED
        else f"Losses that weight rare classes: {', '.join(BALANCED)}."
    )
    return found + _check_pixels(scan, names, hint)


def _check_pixels(scan: Scan, names: tuple[str, ...], hint: str) -> list[Finding]:
    """Report classes with no or few pixels in training masks.

    Args:
      scan: Scan of the data set.
      names: Names of the classes.
      hint: Additional advice for rare classes.
    """
    if not names:
        return []
    pixels = scan.pixels[:, : len(names)]
    train, every = pixels[SPLITS.index("train")], pixels.sum(axis=0)
    share = train / max(1, train.sum())
    found: list[Finding] = []
    cases: tuple[tuple[str, Level, np.ndarray, str], ...] = (
        (
            "pixels_untrained",
            "warning",
            (train == 0) & (every > 0),
            "absent from training",
        ),
        ("pixels_none", "warning", every == 0, "without a pixel"),
        (
            "pixels_rare",
            "note",
            (train > 0) & (share < RARE),
            f"with under {RARE:.1%} of the pixels",
        ),
    )
    for kind, level, which, what in cases:
        if which.any():
            some = [names[i] for i in np.flatnonzero(which)]
            more = hint if kind == "pixels_rare" else ""
            found.append(named(kind, level, some, f"of masks {what}", more))
    return found
