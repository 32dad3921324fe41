"""What is wrong, or unusual: single images, sizes of classes, the same image twice."""

from collections.abc import Sequence

import numpy as np

from jaxtrain.config import DataConfig, SoundConfig
from jaxtrain.data import defects
from jaxtrain.data.doctor.near import equal_ones, find_near
from jaxtrain.data.doctor.report import Finding, Level, of_rows
from jaxtrain.data.doctor.scan import SPLITS, Scan
from jaxtrain.data.stores import Remark, Store, remarks_of
from jaxtrain.errors import counted

# Times the usual width over height, or its inverse, from which on it is unusual.
ODD_ASPECT = 3.0
# Times the length of a clip, or its inverse, from which on a sound's is told.
ODD_LENGTH = 2.0
# With fewer examples than this, a tenth that is held out may have none of a class.
FEW = 10
# Largest class over the smallest: from here on a model does well by guessing.
MAX_RATIO = 10
# Classes named in a title.
NUM_NAMED = 10
# Of the pixels, in 0..255, the least standard deviation of an image that shows
# something. Below it nothing is left to compare but the noise of the file's format.
MIN_CONTRAST = 2.0
# Kind of remark -> level and title.
REMARKS: dict[str, tuple[Level, str]] = {
    "extension": ("warning", "{} of another format than the name says"),
    "animated": ("warning", "{} of several pictures"),
    "rotated": ("note", "{} stored on the side, as EXIF tells"),
    "alpha": ("note", "{} with transparency"),
    "clipped": ("warning", "{} with clipped samples"),
}
# End of the kind of a finding -> how images that are alike lie.
CASES = {
    "_conflict": "with different labels",
    "_leak": "in more than one split",
    "": "in one split",
}
# A key of `CASES` -> the groups of rows that are so.
Groups = dict[str, list[list[int]]]


def check_files(scan: Scan, config: DataConfig) -> list[Finding]:
    """Report files that cannot be read, and what is unusual about the others."""
    found = _unreadable(scan, config)
    for kind, (level, title) in REMARKS.items():
        rows = scan.remarks.get(kind, [])
        found += of_rows(kind, level, title, rows, noun=scan.noun)
    usual, *others = scan.modes or [""]
    title = f"{{}} stored as {', '.join(others)}, and not as {usual} like most"
    odd = scan.odd_modes
    kind = "rates" if scan.noun == "sound" else "modes"
    return found + of_rows(kind, "note", title, [*odd], odd, scan.noun)


def check_remarks(store: Store, more: Sequence[Remark] = ()) -> list[Finding]:
    """Report the files that were passed over when the set was opened, and `more`."""
    return [
        Finding(
            remark.title.replace(" ", "_"),
            "warning" if remark.serious else "note",
            f"{remark.title}: {remark.text}",
        )
        for remark in (*remarks_of(store), *more)
    ]


def check_lengths(scan: Scan, sound: SoundConfig) -> list[Finding]:
    """Report sounds that are much longer, or shorter, than their clips.

    Args:
      scan: Scan of a set of sounds.
      sound: Section of the sound.
    """
    seconds = scan.size[:, 1] / 1000
    cases = (
        ("length_long", seconds > ODD_LENGTH * sound.seconds, "over twice"),
        ("length_short", seconds < sound.seconds / ODD_LENGTH, "under half"),
    )
    found: list[Finding] = []
    for kind, odd, what in cases:
        rows = np.flatnonzero(odd & scan.readable).tolist()
        title = f"{{}} of {what} data.sound.seconds = {sound.seconds:g}"
        told = {row: f"{seconds[row]:.2f} s" for row in rows}
        found += of_rows(kind, "note", title, rows, told, "sound")
    return found


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
    """Report images of one colour, and sounds of silence."""
    rows = np.flatnonzero(scan.readable & (scan.contrast < MIN_CONTRAST)).tolist()
    contrast = {row: f"contrast {scan.contrast[row]:.2f} of 255" for row in rows}
    if scan.noun == "sound":
        return of_rows("silent", "warning", "{} of silence", rows, noun="sound")
    return of_rows("blank", "warning", "{} of one colour", rows, contrast)


def check_classes(scan: Scan) -> list[Finding]:
    """Report wrong labels, and classes of unusual sizes."""
    if scan.labels is None:
        return []
    num, counts = len(scan.class_names), scan.count_classes()
    wrong = np.flatnonzero((scan.labels < 0) | (scan.labels >= num)).tolist()
    title = f"{{}} whose label is not 0 to {num - 1}"
    found = of_rows("labels_missing", "error", title, wrong, noun=scan.noun)
    train, total = counts[SPLITS.index("train")], counts.sum(axis=0)
    trained = train[train > 0]
    if len(trained) < 2:
        title = (
            f"training has {scan.noun}s of {counted(len(trained), 'class', 'classes')}"
        )
        found.append(Finding("one_class", "error", title))
    untrained, few = (train == 0) & (total > 0), (train > 0) & (train < FEW)
    cases: tuple[tuple[str, Level, np.ndarray, str], ...] = (
        ("class_untrained", "error", untrained, "that training has not"),
        ("class_empty", "warning", total == 0, f"without any {scan.noun}"),
        ("class_few", "warning", few, f"of fewer than {FEW} {scan.noun}s to train"),
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
    bad_rows = scan.unreadable
    return of_rows("unreadable", level, title, [*bad_rows], bad_rows, scan.noun)


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
        *_report(same, "duplicates", f"equal {scan.noun}s", "warning"),
        *_report(find_similar(scan), "near", f"nearly equal {scan.noun}s", "note"),
    ]


def rows_to_leave_out(scan: Scan, same: Groups) -> set[int]:
    """Return the rows that a clean list of the set leaves out.

    What is unreadable, or has a target that does not fit; of the same images all but
    one; all of them, if their labels differ. The one that stays is of the test split,
    if any is, or else of the validation split: what a model is measured by stays as it
    is.
    """
    left_out = {*scan.unreadable, *scan.bad_targets}
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
            title = f"{sum(map(len, rows))} {what} {CASES[case]}"
            if len(rows) > 1:
                title += f", in {len(rows)} groups"
            level = "warning" if case else harmless
            found.append(
                Finding(kind=kind + case, level=level, title=title, groups=rows)
            )
    return found
