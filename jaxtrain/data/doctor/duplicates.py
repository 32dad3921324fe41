"""The same image several times: in two splits, or with two labels."""

from dataclasses import dataclass

import numpy as np

from jaxtrain.data.doctor.finding import Finding, Level
from jaxtrain.data.doctor.near import equal_ones, find_near
from jaxtrain.data.doctor.scan import Scan

# Of the pixels, in 0..255, the least standard deviation of an image that shows
# something. Below it nothing is left to compare but the noise of the file's format.
MIN_CONTRAST = 2.0


@dataclass(frozen=True)
class Group:
    """Rows of images that are the same, or nearly so.

    Attributes:
      rows: of the scan, rising.
      across_splits: they are not all in one split.
      labels_differ: they are not all of one class.
    """

    rows: tuple[int, ...]
    across_splits: bool
    labels_differ: bool


def exact(scan: Scan) -> list[Group]:
    """Group the images whose decoded pixels are the same, in whatever files."""
    rows = np.flatnonzero(scan.readable)
    same = equal_ones(scan.pixel_hash[rows])
    return _describe(scan, [rows[places] for places in same])


def nearly(scan: Scan) -> list[Group]:
    """Group the images that look nearly the same; of the same ones the first counts."""
    shows = np.flatnonzero(scan.readable & (scan.contrast >= MIN_CONTRAST))
    _, first = np.unique(scan.pixel_hash[shows], return_index=True)
    rows = np.sort(shows[first])
    near = find_near(scan.perceptual[rows], scan.prints[rows])
    return _describe(scan, [rows[places] for places in near])


def check_duplicates(scan: Scan, same: list[Group]) -> list[Finding]:
    """Find duplicates, and images that look nearly the same."""
    return [
        *_tell(same, "duplicates", "equal", "warning"),
        *_tell(nearly(scan), "near", "nearly equal", "note"),
    ]


def _tell(groups: list[Group], kind: str, what: str, harmless: Level) -> list[Finding]:
    """Report conflicts, leaks and duplicates within a split, each by itself."""
    conflicts = [g for g in groups if g.labels_differ]
    leaks = [g for g in groups if g.across_splits and not g.labels_differ]
    rest = [g for g in groups if not g.across_splits and not g.labels_differ]
    parts: tuple[tuple[str, Level, str, list[Group]], ...] = (
        ("_conflict", "warning", "with different labels", conflicts),
        ("_leak", "warning", "in more than one split", leaks),
        ("", harmless, "in one split", rest),
    )
    found = []
    for suffix, level, where, some in parts:
        if some:
            rows = [group.rows for group in some]
            title = f"{sum(map(len, rows))} {what} images {where}"
            if len(rows) > 1:
                title += f", in {len(rows)} groups"
            found.append(
                Finding(kind=kind + suffix, level=level, title=title, groups=rows)
            )
    return found


def to_leave_out(scan: Scan, same: list[Group]) -> set[int]:
    """Return the rows that a clean list of the set leaves out.

    What is unreadable; of the same images all but one; all of them, if their labels
    differ. The one that stays is of the test split, if any is, or else of the
    validation split: what a model is measured by stays as it is.
    """
    left_out = set(scan.unreadable)
    for group in same:
        left_out |= set(group.rows)
        if not group.labels_differ:
            last = max(scan.split[row] for row in group.rows)
            left_out.remove(next(r for r in group.rows if scan.split[r] == last))
    return left_out


def _describe(scan: Scan, parts: list[np.ndarray]) -> list[Group]:
    found = [
        Group(
            rows=tuple(part.tolist()),
            across_splits=len(set(scan.split[part].tolist())) > 1,
            labels_differ=scan.labels is not None
            and len(set(scan.labels[part].tolist())) > 1,
        )
        for part in parts
    ]
    # What matters most comes first.
    return sorted(
        found, key=lambda g: (not g.labels_differ, not g.across_splits, g.rows)
    )
