"""`data_report.html`: all that was found, for people, in one file."""

from collections.abc import Sequence
from typing import NamedTuple

from jaxtrain.data.doctor import thumbnails
from jaxtrain.data.doctor.checks import describe_sizes
from jaxtrain.data.doctor.diagnosis import Diagnosis
from jaxtrain.data.doctor.finding import Finding, count_images
from jaxtrain.data.doctor.scan import SPLITS
from jaxtrain.pages.pictures import TINY
from jaxtrain.pages.templates import render

# Shown of a finding; data_report.json has all.
MAX_PICTURES = 24
MAX_GROUPS = 12
MAX_OF_GROUP = 6
MAX_CLASSES = 1000


class ClassSizes(NamedTuple):
    """The examples of a class.

    Attributes:
      name: Name of the class.
      counts: Number of examples in each split.
      part: Number in training as a part of that of the largest class.
    """

    name: str
    counts: Sequence[int]
    part: float


def make_page(diagnosis: Diagnosis) -> bytes:
    """Return the page."""
    shown = [_shown(finding) for finding in diagnosis.findings]
    rows = {row for groups in shown for group in groups for row in group}
    pictures = thumbnails.draw(
        diagnosis.store, diagnosis.scan, diagnosis.rules, sorted(rows)
    )
    return render(
        "data/doctor/page.html.j2",
        diagnosis=diagnosis,
        scan=diagnosis.scan,
        verdict=_verdict(diagnosis),
        about=_facts(diagnosis),
        findings=list(zip(diagnosis.findings, shown, strict=True)),
        pictures=pictures,
        tiny=TINY,
        splits=list(diagnosis.scan.count_examples()),
        classes=_classes(diagnosis),
        num_classes=0 if diagnosis.classes is None else len(diagnosis.classes.names),
    )


def _shown(finding: Finding) -> list[Sequence[int]]:
    """Return the groups of examples that the page shows."""
    if any(len(group) > 1 for group in finding.groups):
        return [group[:MAX_OF_GROUP] for group in finding.groups[:MAX_GROUPS]]
    return list(finding.groups[:MAX_PICTURES])


def _verdict(diagnosis: Diagnosis) -> tuple[str, str]:
    """Return how bad it is: error, warning, note or good, and a sentence."""
    if diagnosis.errors:
        return "error", "Not ready: a run would end, or learn nothing of use."
    if diagnosis.findings:
        notes = all(finding.level == "note" for finding in diagnosis.findings)
        level = "note" if notes else "warning"
        return level, "A run can start; have a look at this first."
    return "good", "Nothing was found: ready to train."


def _facts(diagnosis: Diagnosis) -> dict[str, str]:
    scan, sizes = diagnosis.scan, describe_sizes(diagnosis.scan)
    found = {name: count_images(num) for name, num in scan.count_examples().items()}
    if "min" in sizes:
        shown = {key: _size(sizes[key]) for key in ("min", "median", "max")}
        found["size (width x height)"] = (
            shown["min"]
            if sizes["num_different"] == 1
            else f"{shown['min']} to {shown['max']}, median {shown['median']}, "
            f"{sizes['num_different']} different"
        )
    found["stored as"] = _counts(scan.modes)
    if scan.formats:
        found["files"] = _counts(scan.formats)
    found["mean of the channels"] = ", ".join(f"{value:.4f}" for value in scan.mean)
    found["standard deviation"] = ", ".join(f"{value:.4f}" for value in scan.std)
    if diagnosis.classes is not None:
        found["classes"] = str(len(diagnosis.classes.names))
    for kind, part in diagnosis.label_noise.items():
        where = "training" if kind == "in_sample" else "validation and test"
        found[f"wrong labels, {where}"] = f"about {part:.1%} by estimate"
    return found


def _size(size: object) -> str:
    height, width = size  # type: ignore[misc]
    return f"{width:g}x{height:g}"


def _counts(counts: object) -> str:
    pairs = counts.items()  # type: ignore[attr-defined]
    return ", ".join(f"{num} {name}" for name, num in pairs) or "-"


def _classes(diagnosis: Diagnosis) -> list[ClassSizes]:
    """Return the examples of the first classes; nothing if the targets are none."""
    classes = diagnosis.classes
    if classes is None:
        return []
    splits = [SPLITS.index(name) for name in diagnosis.scan.count_examples()]
    most = max(1, int(classes.in_training.max(initial=0)))
    return [
        ClassSizes(
            name, classes.counts[splits, i].tolist(), int(classes.in_training[i]) / most
        )
        for i, name in enumerate(classes.names[:MAX_CLASSES])
    ]
