"""`data_report.html`: findings with example images, in one file."""

import contextlib
import warnings
from collections.abc import Iterable, Mapping, Sequence

from jaxtrain.data.files import UnreadableError
from jaxtrain.errors import counted
from jaxtrain.plugins.doctor.look import picture
from jaxtrain.plugins.doctor.report import Diagnosis, Finding
from jaxtrain.plugins.report.pages.pictures import TINY, to_address
from jaxtrain.plugins.report.pages.templates import render

# Maximum numbers of images per finding, groups per finding, images per group, and
# classes on the page; data_report.json is complete.
MAX_PICTURES = 24
MAX_GROUPS = 12
MAX_OF_GROUP = 6
MAX_CLASSES = 1000


def make_page(diagnosis: Diagnosis) -> bytes:
    """Render `data_report.html`, encoded as UTF-8."""
    shown = [_shown(finding) for finding in diagnosis.findings]
    rows = {row for groups in shown for group in groups for row in group}
    classes = diagnosis.scan.class_sizes()
    largest = max([1, *(sizes.get("train", 0) for _, sizes in classes)])
    return render(
        "plugins/doctor/page.html.j2",
        diagnosis=diagnosis,
        scan=diagnosis.scan,
        verdict=_verdict(diagnosis),
        about=_facts(diagnosis),
        findings=list(zip(diagnosis.findings, shown, strict=True)),
        pictures=_draw(diagnosis, sorted(rows)),
        tiny=TINY,
        splits=list(diagnosis.scan.count_examples()),
        classes=classes[:MAX_CLASSES],
        num_classes=len(classes),
        largest=largest,
    )


def _shown(finding: Finding) -> list[Sequence[int]]:
    """Return the groups of examples to show on the page."""
    if finding.grouped:
        return [group[:MAX_OF_GROUP] for group in finding.groups[:MAX_GROUPS]]
    return list(finding.groups[:MAX_PICTURES])


def _draw(diagnosis: Diagnosis, rows: Iterable[int]) -> dict[int, str]:
    """Return thumbnails of readable images, as row of the scan -> data URL."""
    scan, train = diagnosis.scan, diagnosis.train
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for row in rows:
            if row in scan.unreadable:
                continue
            (stored,), _ = train.store.read(scan.index[row : row + 1])
            # The file may have changed since the scan.
            with contextlib.suppress(UnreadableError):
                found[row] = to_address(picture(stored, train))
    return found


def _verdict(diagnosis: Diagnosis) -> tuple[str, str]:
    """Return the overall level (error, warning, note or good), and a sentence."""
    if diagnosis.errors:
        return "error", "Not ready: a run on these data would fail."
    if diagnosis.findings:
        # Findings are sorted by severity, errors first.
        level = diagnosis.findings[0].level
        return level, "A run can start; see the findings first."
    return "good", "No problems were found: ready to train."


def _facts(diagnosis: Diagnosis) -> dict[str, str]:
    scan, sizes = diagnosis.scan, diagnosis.scan.describe_sizes()
    found = {} if diagnosis.task is None else {"task": diagnosis.task}
    for name, number in scan.count_examples().items():
        found[name] = counted(number, scan.noun)
    if "min" in sizes and scan.noun == "sound":
        least, median, most = (sizes[key][1] / 1000 for key in ("min", "median", "max"))
        found["length"] = f"{least:g} to {most:g} s, median {median:g} s"
    elif "min" in sizes:
        least, median, most = (
            "{1:g}x{0:g}".format(*sizes[key]) for key in ("min", "median", "max")
        )
        num = sizes["num_different"]
        found["size (width x height)"] = (
            least
            if num == 1
            else f"{least} to {most}, median {median}, {num} different"
        )
    found["stored as"] = _counts(scan.modes)
    if scan.formats:
        found["files"] = _counts(scan.formats)
    what = "spectrograms" if scan.noun == "sound" else "stored pixels"
    for name, values in zip(
        ("mean", "standard deviation"), scan.statistics(), strict=True
    ):
        told = ", ".join(f"{value:.4f}" for value in values)
        found[f"{name} of the {what} of training, 0 to 1"] = told
    if scan.labels is not None:
        found["classes"] = str(len(scan.class_names))
    for kind, part in diagnosis.label_noise.items():
        where = "training" if kind == "in_sample" else "validation and test"
        found[f"wrong labels, {where}"] = f"about {part:.1%} (estimate)"
    return found


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{num} {name}" for name, num in counts.items()) or "-"
