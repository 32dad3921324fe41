"""Checks of images, class sizes and duplicates."""

from collections.abc import Sequence

import numpy as np

from jaxtrain.config import DataConfig, SoundConfig
from jaxtrain.data import defects, images
from jaxtrain.data.image_source import Source
from jaxtrain.data.stores import Remark, Store, remarks_of
from jaxtrain.errors import counted
from jaxtrain.plugins.doctor.near import equal_ones, find_near
from jaxtrain.plugins.doctor.report import Finding, Level, of_rows
from jaxtrain.plugins.doctor.scan import SPLITS, Scan
from jaxtrain.plugins.segmentation import upright

# Aspect ratios that differ from the median by more than this factor are unusual.
ODD_ASPECT = 3.0
# Sounds whose length differs from the clip length by more than this factor are unusual.
ODD_LENGTH = 2.0
# A class with fewer training examples may be absent from a 10 % validation split.
FEW = 10
# Minimum ratio of the largest to the smallest class to report an imbalance.
MAX_RATIO = 10
# Maximum number of classes named in a title.
NUM_NAMED = 10
# Minimum standard deviation of pixels (0 to 255). Images with less contrast show only
# compression noise.
MIN_CONTRAST = 2.0
# Kind of remark -> level and title.
REMARKS: dict[str, tuple[Level, str]] = {
    "extension": ("warning", "{} whose format differs from the file extension"),
    "animated": ("warning", "{} with several frames"),
    "rotated": ("note", "{} stored rotated, with an EXIF orientation"),
    "alpha": ("note", "{} with transparency"),
    "clipped": ("warning", "{} with clipped samples"),
}
# Effect of `data.crop_mode` on images of unusual shape.
SHOWN_SHAPE = {
    "center": "Only the central square crop is used, which may miss the object: crop "
    "the images, or set data.crop_mode to border.",
    "border": "The full image is scaled down and padded with a border: crop the images "
    "if the objects become too small.",
    "squash": "The images are squashed to a square: crop the images, or set "
    "data.crop_mode to border.",
}
# Suffix of a finding's kind -> description of a group of duplicates.
CASES = {
    "_conflict": "with different labels",
    "_leak": "in more than one split",
    "": "in one split",
}
# Key of `CASES` -> groups of duplicates, as rows (see `Scan`).
Groups = dict[str, list[list[int]]]


def check_files(scan: Scan, config: DataConfig, targets: str = "") -> list[Finding]:
    """Report unreadable and unusual files.

    Args:
      scan: Scan of the data set.
      config: `data` section of the config.
      targets: "boxes" or "masks" for detection and segmentation, else empty.
    """
    found = _unreadable(scan, config)
    for kind, (level, title) in REMARKS.items():
        rows = scan.remarks.get(kind, [])
        if kind == "rotated" and targets and config.boxes_drawn_on is None:
            kind, level = "rotated_targets", "warning"
            title = (
                f"{{}} rotated by EXIF, whose {targets} may refer to the stored pixels"
            )
        found += of_rows(kind, level, title, rows, noun=scan.noun)
    usual, *others = scan.modes or [""]
    title = f"{{}} stored as {', '.join(others)}, unlike most images ({usual})"
    odd = scan.odd_modes
    kind = "rates" if scan.noun == "sound" else "modes"
    return found + of_rows(kind, "note", title, [*odd], odd, scan.noun)


def check_remarks(store: Store, more: Sequence[Remark] = ()) -> list[Finding]:
    """Convert the remarks of a store, and the other remarks `more`, to findings."""
    return [
        Finding(
            remark.title.replace(" ", "_"),
            "warning" if remark.serious else "note",
            f"{remark.title}: {remark.text}",
        )
        for remark in (*remarks_of(store), *more)
        if remark.title != upright.TITLE  # Reported by `check_files`.
    ]


def check_lengths(scan: Scan, sound: SoundConfig) -> list[Finding]:
    """Report sounds much longer or shorter than the clip length.

    Args:
      scan: Scan of a sound data set.
      sound: `data.sound` section of the config.
    """
    seconds = scan.size[:, 1] / 1000
    cases = (
        ("length_long", seconds > ODD_LENGTH * sound.seconds, "longer than twice"),
        ("length_short", seconds < sound.seconds / ODD_LENGTH, "shorter than half"),
    )
    found: list[Finding] = []
    for kind, odd, what in cases:
        rows = np.flatnonzero(odd & scan.readable).tolist()
        title = f"{{}} {what} data.sound.seconds = {sound.seconds:g}"
        told = {row: f"{seconds[row]:.2f} s" for row in rows}
        found += of_rows(kind, "note", title, rows, told, "sound")
    return found


def check_sizes(
    scan: Scan,
    stored: tuple[int | None, int | None, int],
    config: DataConfig,
    *,
    sized: bool,
) -> list[Finding]:
    """Report images that differ in size, and unusual aspect ratios.

    Args:
      scan: Scan of the data set.
      stored: Height, width and channels of the stored images; None if unknown.
      config: `data` section of the config.
      sized: Whether the config is a recipe, which must set data.image_size if images
        differ in size.
    """
    rows = np.flatnonzero(scan.readable)
    if not len(rows):
        return []
    found: list[Finding] = []
    num_sizes = len(np.unique(scan.size[rows], axis=0))
    if images.lacks_size(stored, config.image_size) and (sized or num_sizes > 1):
        title = (
            f"images of {num_sizes} sizes, and no data.image_size"
            if num_sizes > 1
            else "image files may differ in size, and data.image_size is not set"
        )
        found.append(Finding("sizes", "error" if sized else "note", title))
    height, width = scan.size[rows].T
    aspect = np.log(width / height)
    odd = rows[np.abs(aspect - np.median(aspect)) > np.log(ODD_ASPECT)].tolist()
    shapes = {row: "{1}x{0} pixels".format(*scan.size[row]) for row in odd}
    title, hint = "{} with an unusual aspect ratio", ""
    if config.image_size is not None:
        hint = SHOWN_SHAPE[config.fit[-1]]
    return found + of_rows("aspect", "warning", title, odd, shapes, hint=hint)


def check_blank(scan: Scan) -> list[Finding]:
    """Report images of a single colour, and silent sounds."""
    rows = np.flatnonzero(scan.readable & (scan.contrast < MIN_CONTRAST)).tolist()
    contrast = {row: f"contrast {scan.contrast[row]:.2f} of 255" for row in rows}
    if scan.noun == "sound":
        return of_rows("silent", "warning", "{} of silence", rows, noun="sound")
    return of_rows("blank", "warning", "{} of a single colour", rows, contrast)


def check_classes(scan: Scan) -> list[Finding]:
    """Report invalid labels, empty and small classes, and imbalance."""
    if scan.labels is None:
        return []
    num, counts = len(scan.class_names), scan.count_classes()
    wrong = np.flatnonzero((scan.labels < 0) | (scan.labels >= num)).tolist()
    title = f"{{}} with a label outside 0 to {num - 1}"
    found = of_rows("labels_missing", "warning", title, wrong, noun=scan.noun)
    train, total = counts[SPLITS.index("train")], counts.sum(axis=0)
    trained = train[train > 0]
    if len(trained) < 2:
        title = (
            f"training has {scan.noun}s of {counted(len(trained), 'class', 'classes')}"
        )
        found.append(Finding("one_class", "warning", title))
    untrained, few = (train == 0) & (total > 0), (train > 0) & (train < FEW)
    cases = (
        ("class_untrained", untrained, f"without training {scan.noun}s"),
        ("class_empty", total == 0, f"without any {scan.noun}"),
        ("class_few", few, f"with fewer than {FEW} training {scan.noun}s"),
    )
    for kind, which, what in cases:
        if which.any():
            names = [scan.class_names[i] for i in np.flatnonzero(which)]
            found.append(named(kind, "warning", names, what))
    ratio = trained.max() / trained.min() if len(trained) else 1
    if ratio >= MAX_RATIO:
        title = f"class imbalance: the largest class is {ratio:.3g} times the smallest"
        found.append(Finding("imbalance", "warning", title))
    return found


def _unreadable(scan: Scan, config: DataConfig) -> list[Finding]:
    """Report unreadable images: an error above `max_bad_fraction`, else a warning."""
    bad = scan.unreadable
    over = scan.over_limit(bad, config.max_bad_fraction)
    title = "{} that cannot be read"
    if over:
        most = config.max_bad_fraction
        title += f"; {', '.join(over)}, more than data.max_bad_fraction = {most}"
    level: Level = "error" if over else "warning"
    return of_rows("unreadable", level, title, [*bad], bad, scan.noun)


def check_lost(scan: Scan, train: Source) -> list[Finding]:
    """Report classes without readable training images."""
    is_bad = np.isin(scan.rows["train"], [*scan.unreadable, *scan.bad_targets])
    if not is_bad.any() or is_bad.all():
        return []
    lost = defects.lost_groups(train.strata(), is_bad).tolist()
    if not lost:
        return []
    names = scan.class_names
    told = [names[i] if 0 <= i < len(names) else str(i) for i in lost]
    title = f"without a readable training {scan.noun}"
    return [named("class_unreadable", "error", told, title)]


def named(
    kind: str, level: Level, names: Sequence[str], what: str, hint: str = ""
) -> Finding:
    """Return a finding; its title has the number of classes and some class names."""
    more = f" and {len(names) - NUM_NAMED} more" if len(names) > NUM_NAMED else ""
    first = ", ".join(names[:NUM_NAMED]) + more
    title = f"{counted(len(names), 'class', 'classes')} {what}: {first}"
    return Finding(kind, level, title, hint=hint)


def find_equal(scan: Scan) -> Groups:
    """Group images with equal decoded pixels."""
    rows = np.flatnonzero(scan.readable)
    same = equal_ones(scan.pixel_hash[rows])
    return _by_case(scan, [rows[places].tolist() for places in same])


def find_similar(scan: Scan) -> Groups:
    """Group near-duplicate images; only the first of exact duplicates is considered."""
    shows = np.flatnonzero(scan.readable & (scan.contrast >= MIN_CONTRAST))
    _, first = np.unique(scan.pixel_hash[shows], return_index=True)
    rows = np.sort(shows[first])
    near = find_near(scan.perceptual[rows], scan.prints[rows])
    return _by_case(scan, [rows[places].tolist() for places in near])


def check_duplicates(scan: Scan, same: Groups) -> list[Finding]:
    """Report duplicates and near-duplicates.

    Args:
      scan: Scan of the data set.
      same: Groups of exact duplicates (`find_equal`).
    """
    return [
        *_report(same, "duplicates", f"equal {scan.noun}s", "warning"),
        *_report(find_similar(scan), "near", f"nearly equal {scan.noun}s", "note"),
    ]


def rows_to_leave_out(scan: Scan, same: Groups) -> set[int]:
    """Return the `Scan` rows of the images that `--write-clean` does not list.

    These are unreadable images, images with invalid targets, and duplicates. If
    duplicates have different labels, all of them are left out. Otherwise one image is
    listed: from the test split if possible, else from the validation split, so that
    evaluations do not change.
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
    # Sort groups that span several splits first.
    for rows in sorted(groups, key=lambda rows: (not across(rows), rows)):
        differ = scan.labels is not None and len(set(scan.labels[rows].tolist())) > 1
        found["_conflict" if differ else "_leak" if across(rows) else ""].append(rows)
    return found


def _report(groups: Groups, kind: str, what: str, harmless: Level) -> list[Finding]:
    """Return separate findings for label conflicts, leaks, and other duplicates."""
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
