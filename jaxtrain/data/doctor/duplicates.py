"""The same image several times: in two splits, or with two labels."""

import numpy as np

from jaxtrain.data.doctor.finding import Finding, Level
from jaxtrain.data.doctor.near import equal_ones, find_near
from jaxtrain.data.doctor.scan import Scan

# Of the pixels, in 0..255, the least standard deviation of an image that shows
# something. Below it nothing is left to compare but the noise of the file's format.
MIN_CONTRAST = 2.0
# End of the kind of a finding -> how images that are alike lie.
CASES = {
    "_conflict": "with different labels",
    "_leak": "in more than one split",
    "": "in one split",
}
# A key of `CASES` -> the groups of rows that are so.
Groups = dict[str, list[list[int]]]


def find_equal(scan: Scan) -> Groups:
    """Group the images whose decoded pixels are the same, in whatever files."""
    rows = np.flatnonzero(scan.readable)
    same = equal_ones(scan.pixel_hash[rows])
    return _by_case(scan, [rows[places].tolist() for places in same])


def find_similar(scan: Scan) -> Groups:
    """Group the images that look nearly the same; of the same ones the first counts."""
    shows = np.flatnonzero(scan.readable & (scan.contrast >= MIN_CONTRAST))
    _, first = np.unique(scan.pixel_hash[shows], return_index=True)
    rows = np.sort(shows[first])
    near = find_near(scan.perceptual[rows], scan.prints[rows])
    return _by_case(scan, [rows[places].tolist() for places in near])


def check_duplicates(scan: Scan, same: Groups) -> list[Finding]:
    """Report duplicates, and images that look nearly the same."""
    return [
        *_report(same, "duplicates", "equal", "warning"),
        *_report(find_similar(scan), "near", "nearly equal", "note"),
    ]


def rows_to_leave_out(scan: Scan, same: Groups) -> set[int]:
    """Return the rows that a clean list of the set leaves out.

    What is unreadable; of the same images all but one; all of them, if their labels
    differ. The one that stays is of the test split, if any is, or else of the
    validation split: what a model is measured by stays as it is.
    """
    left_out = set(scan.unreadable)
    for case, groups in same.items():
        for group in groups:
            left_out |= set(group)
            if case != "_conflict":
                left_out.remove(max(group, key=lambda row: (scan.split[row], -row)))
    return left_out


def _by_case(scan: Scan, groups: list[list[int]]) -> Groups:
    def across(rows: list[int]) -> bool:
        return len(set(scan.split[rows].tolist())) > 1

    found: Groups = {case: [] for case in CASES}
    # Of those whose labels differ those in several splits come first.
    for rows in sorted(groups, key=lambda rows: (not across(rows), rows)):
        differ = scan.labels is not None and len(set(scan.labels[rows].tolist())) > 1
        found["_conflict" if differ else "_leak" if across(rows) else ""].append(rows)
    return found


def _report(groups: Groups, kind: str, what: str, harmless: Level) -> list[Finding]:
    """Report conflicts, leaks and duplicates within a split, each by itself."""
    found = []
    for case, rows in groups.items():
        if rows:
            title = f"{sum(map(len, rows))} {what} images {CASES[case]}"
            if len(rows) > 1:
                title += f", in {len(rows)} groups"
            level = "warning" if case else harmless
            found.append(
                Finding(kind=kind + case, level=level, title=title, groups=rows)
            )
    return found
