"""What is wrong, or unusual, of masks and other targets with a place in the image."""

import numpy as np

from jaxtrain.data import defects
from jaxtrain.data.doctor.checks import NUM_NAMED
from jaxtrain.data.doctor.report import Finding, Level, of_rows
from jaxtrain.data.doctor.scan import SPLITS, Scan
from jaxtrain.data.image_source import Source
from jaxtrain.data.pixel_classes import PIXEL_CLASSES
from jaxtrain.errors import counted

# Part of the pixels below which a class is rare.
RARE = 1e-3


def check_placed(scan: Scan, train: Source, max_bad_fraction: float) -> list[Finding]:
    """Report targets that do not fit their images, and classes of few pixels.

    Args:
      scan: Scan of the set.
      train: The training split.
      max_bad_fraction: Part of a split that may be unreadable.
    """
    bad = scan.bad_targets
    numbers = np.bincount(scan.split[[*bad, *scan.unreadable]], minlength=len(SPLITS))
    over = any(
        defects.too_many(int(numbers[SPLITS.index(name)]), num, max_bad_fraction)
        for name, num in scan.count_examples().items()
    )
    level: Level = "error" if over else "warning"
    title = "{} whose target does not fit"
    if over:
        title += f"; more of a split than data.max_bad_fraction = {max_bad_fraction}"
    found = of_rows("target_unfit", level, title, [*bad], bad)
    return found + _check_pixels(scan, train.facts.get(PIXEL_CLASSES, ()))


def _check_pixels(scan: Scan, names: tuple[str, ...]) -> list[Finding]:
    """Report classes of which masks have no pixel in training, or few."""
    if not names:
        return []
    pixels = scan.pixels[:, : len(names)]
    train, every = pixels[SPLITS.index("train")], pixels.sum(axis=0)
    share = train / max(1, train.sum())
    found: list[Finding] = []
    if np.count_nonzero(train) < 2:
        title = "training has pixels of fewer than two classes"
        found.append(Finding("one_class", "error", title))
    cases: tuple[tuple[str, Level, np.ndarray, str], ...] = (
        (
            "pixels_untrained",
            "error",
            (train == 0) & (every > 0),
            "that training lacks",
        ),
        ("pixels_none", "warning", every == 0, "without a pixel"),
        ("pixels_rare", "note", (train > 0) & (share < RARE), f"of under {RARE:.1%}"),
    )
    for kind, level, which, what in cases:
        some = [names[i] for i in np.flatnonzero(which)]
        if some:
            more = f" and {len(some) - NUM_NAMED} more" if len(some) > NUM_NAMED else ""
            title = f"{counted(len(some), 'class', 'classes')} of pixels {what}: "
            title += ", ".join(some[:NUM_NAMED]) + more
            found.append(Finding(kind, level, title))
    return found
