"""What is wrong, or unusual, with single images: their files, sizes and pixels."""

import numpy as np

from jaxtrain.config import DataConfig
from jaxtrain.data import defects
from jaxtrain.data.doctor.duplicates import MIN_CONTRAST
from jaxtrain.data.doctor.finding import Finding, Level, of_rows
from jaxtrain.data.doctor.scan import Scan
from jaxtrain.data.stores import Store, remarks_of

# Times the usual width over height, or its inverse, from which on it is unusual.
ODD_ASPECT = 3.0
# Kind of remark -> level and title.
REMARKS: dict[str, tuple[Level, str]] = {
    "extension": ("warning", "{} of another format than the name says"),
    "animated": ("warning", "{} of several pictures"),
    "rotated": ("note", "{} stored on the side, as EXIF tells"),
    "alpha": ("note", "{} with transparency"),
}


def check_files(scan: Scan, config: DataConfig) -> list[Finding]:
    """Find files that cannot be read, and what is unusual about the others."""
    found = _unreadable(scan, config)
    for kind, (level, title) in REMARKS.items():
        found += of_rows(kind, level, title, scan.remarks.get(kind, []))
    usual = next(iter(scan.modes), "")
    others = ", ".join(mode for mode in scan.modes if mode != usual)
    title = f"{{}} stored as {others}, and not as {usual} like most"
    return found + of_rows("modes", "note", title, [*scan.odd_modes], scan.odd_modes)


def check_remarks(store: Store) -> list[Finding]:
    """Report the files that were passed over when the set was opened."""
    return [
        Finding(
            kind=remark.title.replace(" ", "_"),
            level="warning" if remark.serious else "note",
            title=f"{remark.title}: {remark.text}",
        )
        for remark in remarks_of(store)
    ]


def check_sizes(scan: Scan, config: DataConfig, *, sized: bool) -> list[Finding]:
    """Find different sizes, and images much wider, or higher, than is usual.

    Args:
      scan: of the set.
      config: of the run.
      sized: whether there is a recipe, which must then set data.image_size.
    """
    rows = np.flatnonzero(scan.readable)
    if not len(rows):
        return []
    found: list[Finding] = []
    num_sizes = len(np.unique(scan.size[rows], axis=0))
    if num_sizes > 1 and config.image_size is None:
        title = f"images of {num_sizes} sizes, and no data.image_size"
        level: Level = "error" if sized else "note"
        found.append(Finding(kind="sizes", level=level, title=title))
    height, width = scan.size[rows].T
    aspect = np.log(width / height)
    odd = rows[np.abs(aspect - np.median(aspect)) > np.log(ODD_ASPECT)].tolist()
    shapes = {row: "{1}x{0} pixels".format(*scan.size[row]) for row in odd}
    return found + of_rows("aspect", "warning", "{} of an unusual shape", odd, shapes)


def check_blank(scan: Scan) -> list[Finding]:
    """Find images of one colour."""
    rows = np.flatnonzero(scan.readable & (scan.contrast < MIN_CONTRAST)).tolist()
    contrast = {row: f"contrast {scan.contrast[row]:.2f} of 255" for row in rows}
    return of_rows("blank", "warning", "{} of one colour", rows, contrast)


def _unreadable(scan: Scan, config: DataConfig) -> list[Finding]:
    """Find images that cannot be read, by the rule that ends a run, too."""
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


def describe_sizes(scan: Scan) -> dict[str, object]:
    """Return the least, median and largest height and width, and how many differ."""
    sizes = scan.size[scan.readable]
    if not len(sizes):
        return {"num_different": 0}
    return {
        "min": sizes.min(axis=0).tolist(),
        "median": np.median(sizes, axis=0).tolist(),
        "max": sizes.max(axis=0).tolist(),
        "num_different": len(np.unique(sizes, axis=0)),
    }
