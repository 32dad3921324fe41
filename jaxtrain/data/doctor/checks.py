"""What is wrong, or unusual, with single images and with the sizes of classes."""

import numpy as np

from jaxtrain.config import DataConfig
from jaxtrain.data import defects
from jaxtrain.data.doctor.duplicates import MIN_CONTRAST
from jaxtrain.data.doctor.finding import Finding, Level, of_rows
from jaxtrain.data.doctor.scan import SPLITS, Scan
from jaxtrain.data.stores import Store, remarks_of
from jaxtrain.errors import counted

# Times the usual width over height, or its inverse, from which on it is unusual.
ODD_ASPECT = 3.0
# With fewer examples than this, a tenth that is held out may have none of a class.
FEW = 10
# Largest class over the smallest: from here on a model does well by guessing.
MAX_RATIO = 10
# Classes named in a title.
NUM_NAMED = 10
# Kind of remark -> level and title.
REMARKS: dict[str, tuple[Level, str]] = {
    "extension": ("warning", "{} of another format than the name says"),
    "animated": ("warning", "{} of several pictures"),
    "rotated": ("note", "{} stored on the side, as EXIF tells"),
    "alpha": ("note", "{} with transparency"),
}


def check_files(scan: Scan, config: DataConfig) -> list[Finding]:
    """Report files that cannot be read, and what is unusual about the others."""
    found = _unreadable(scan, config)
    for kind, (level, title) in REMARKS.items():
        found += of_rows(kind, level, title, scan.remarks.get(kind, []))
    usual, *others = scan.modes or [""]
    title = f"{{}} stored as {', '.join(others)}, and not as {usual} like most"
    odd = scan.odd_modes
    return found + of_rows("modes", "note", title, [*odd], odd)


def check_remarks(store: Store) -> list[Finding]:
    """Report the files that were passed over when the set was opened."""
    return [
        Finding(
            remark.title.replace(" ", "_"),
            "warning" if remark.serious else "note",
            f"{remark.title}: {remark.text}",
        )
        for remark in remarks_of(store)
    ]


def check_sizes(scan: Scan, config: DataConfig, *, sized: bool) -> list[Finding]:
    """Report different sizes, and images much wider, or higher, than is usual.

    Args:
      scan: Scan of the set.
      config: Data section of the run.
      sized: whether there is a recipe, which must then set data.image_size.
    """
    rows = np.flatnonzero(scan.readable)
    if not len(rows):
        return []
    found: list[Finding] = []
    num_sizes = len(np.unique(scan.size[rows], axis=0))
    if num_sizes > 1 and config.image_size is None:
        title = f"images of {num_sizes} sizes, and no data.image_size"
        found.append(Finding("sizes", "error" if sized else "note", title))
    height, width = scan.size[rows].T
    aspect = np.log(width / height)
    odd = rows[np.abs(aspect - np.median(aspect)) > np.log(ODD_ASPECT)].tolist()
    shapes = {row: "{1}x{0} pixels".format(*scan.size[row]) for row in odd}
    return found + of_rows("aspect", "warning", "{} of an unusual shape", odd, shapes)


def check_blank(scan: Scan) -> list[Finding]:
    """Report images of one colour."""
    rows = np.flatnonzero(scan.readable & (scan.contrast < MIN_CONTRAST)).tolist()
    contrast = {row: f"contrast {scan.contrast[row]:.2f} of 255" for row in rows}
    return of_rows("blank", "warning", "{} of one colour", rows, contrast)


def check_classes(scan: Scan) -> list[Finding]:
    """Report wrong labels, and classes of unusual sizes."""
    if scan.labels is None:
        return []
    num, counts = len(scan.class_names), scan.count_classes()
    wrong = np.flatnonzero((scan.labels < 0) | (scan.labels >= num)).tolist()
    title = f"{{}} whose label is not 0 to {num - 1}"
    found = of_rows("labels_missing", "error", title, wrong)
    train, total = counts[SPLITS.index("train")], counts.sum(axis=0)
    trained = train[train > 0]
    if len(trained) < 2:
        title = f"training has images of {counted(len(trained), 'class', 'classes')}"
        found.append(Finding("one_class", "error", title))
    untrained, few = (train == 0) & (total > 0), (train > 0) & (train < FEW)
    cases: tuple[tuple[str, Level, np.ndarray, str], ...] = (
        ("class_untrained", "error", untrained, "that training has not"),
        ("class_empty", "warning", total == 0, "without an image"),
        ("class_few", "warning", few, f"of fewer than {FEW} images to train"),
    )
    for kind, level, which, what in cases:
        names = [scan.class_names[i] for i in np.flatnonzero(which)]
        if names:
            more = len(names) - NUM_NAMED
            first = ", ".join(names[:NUM_NAMED])
            first += f" and {more} more" if more > 0 else ""
            title = f"{counted(len(names), 'class', 'classes')} {what}: {first}"
            found.append(Finding(kind, level, title))
    ratio = trained.max() / trained.min() if len(trained) else 1
    if ratio >= MAX_RATIO:
        title = f"the largest class is {ratio:.3g} times the smallest"
        found.append(Finding("imbalance", "warning", title))
    return found


def _unreadable(scan: Scan, config: DataConfig) -> list[Finding]:
    """Report images that cannot be read, by the rule that ends a run, too."""
    most = config.max_bad_fraction
    bad = scan.count_unreadable()
    over = [
        f"{bad[name]} of {num} in {name}"
        for name, num in scan.count_examples().items()
        if defects.too_many(bad[name], num, most)
    ]
    title = "{} that cannot be read"
    if over:
        title += f"; {', '.join(over)}, more than data.max_bad_fraction = {most}"
    level: Level = "error" if over else "warning"
    return of_rows("unreadable", level, title, [*scan.unreadable], scan.unreadable)
