"""`data_report.html`: all that was found, for people, in one file."""

from collections.abc import Sequence

from jaxtrain.data.doctor import thumbnails
from jaxtrain.data.doctor.checks import describe_sizes
from jaxtrain.data.doctor.diagnosis import Diagnosis
from jaxtrain.data.doctor.finding import Finding, count_images
from jaxtrain.data.doctor.scan import SPLITS
from jaxtrain.pages.page import bar, breakable, facts, figure, render, text
from jaxtrain.pages.pictures import TINY

# Shown of a finding; data_report.json has all.
MAX_PICTURES = 24
MAX_GROUPS = 12
MAX_OF_GROUP = 6
MAX_CLASSES = 1000


def make_page(diagnosis: Diagnosis) -> bytes:
    """Return the page."""
    shown = [_shown(finding) for finding in diagnosis.findings]
    rows = {row for groups in shown for group in groups for row in group}
    pictures = thumbnails.draw(
        diagnosis.store, diagnosis.scan, diagnosis.rules, sorted(rows)
    )
    body = [
        "<header><h1>Data report</h1>",
        f'<div class="soft"><code>{breakable(diagnosis.source)}</code></div>',
        _verdict(diagnosis),
        "</header>",
        _facts(diagnosis),
        _contents(diagnosis.findings),
    ]
    for number, (finding, groups) in enumerate(
        zip(diagnosis.findings, shown, strict=True)
    ):
        body.append(_section(diagnosis, finding, number, groups, pictures))
    body.append(_classes(diagnosis))
    return render(f"Data report: {diagnosis.source}", body)


def _shown(finding: Finding) -> list[Sequence[int]]:
    """Return the groups of examples that the page shows."""
    if any(len(group) > 1 for group in finding.groups):
        return [group[:MAX_OF_GROUP] for group in finding.groups[:MAX_GROUPS]]
    return list(finding.groups[:MAX_PICTURES])


def _verdict(diagnosis: Diagnosis) -> str:
    if diagnosis.errors:
        level, told = "error", "Not ready: a run would end, or learn nothing of use."
    elif diagnosis.findings:
        level, told = "warning", "A run can start; have a look at this first."
        if all(finding.level == "note" for finding in diagnosis.findings):
            level = "note"
    else:
        level, told = "good", "Nothing was found: ready to train."
    return f'<p class="verdict {level}">{told}</p>'


def _facts(diagnosis: Diagnosis) -> str:
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
    return facts(found)


def _size(size: object) -> str:
    height, width = size  # type: ignore[misc]
    return f"{width:g}x{height:g}"


def _counts(counts: object) -> str:
    pairs = counts.items()  # type: ignore[attr-defined]
    return ", ".join(f"{num} {name}" for name, num in pairs) or "-"


def _contents(findings: Sequence[Finding]) -> str:
    items = (
        f'<li class="{finding.level}"><span class="level">{finding.level}</span>'
        f'<a href="#finding-{number}">{text(finding.title)}</a></li>'
        for number, finding in enumerate(findings)
    )
    return f'<ul class="contents">{"".join(items)}</ul>' if findings else ""


def _section(
    diagnosis: Diagnosis,
    finding: Finding,
    number: int,
    groups: Sequence[Sequence[int]],
    pictures: dict[int, str],
) -> str:
    parts = [
        f'<section id="finding-{number}" class="{finding.level}">',
        f'<div class="level">{finding.level}</div>',
        f"<h2>{text(finding.title)}</h2>",
        f'<p class="soft">{text(finding.advice)}</p>',
    ]
    if groups:
        parts.append('<div class="pictures">')
        for group in groups:
            figures = "".join(_figure(diagnosis, finding, r, pictures) for r in group)
            grouped = len(finding.groups[0]) > 1
            parts.append(f'<div class="group">{figures}</div>' if grouped else figures)
        parts.append("</div>")
        hidden = finding.num_examples - sum(map(len, groups))
        if hidden:
            parts.append(f'<p class="soft">{hidden} more in data_report.json</p>')
    parts.append("</section>")
    return "".join(parts)


def _figure(
    diagnosis: Diagnosis, finding: Finding, row: int, pictures: dict[int, str]
) -> str:
    scan = diagnosis.scan
    label = diagnosis.label(row)
    where = diagnosis.split(row) + ("" if label is None else f", {label}")
    name = scan.names[row].removeprefix(scan.folder)
    lines = [
        f"<b>{breakable(name)}</b>",
        f'<span class="soft">{breakable(where)}</span>',
    ]
    detail = finding.details.get(row)
    if detail is not None:
        lines.append(text(detail))
    tiny = bool(scan.size[row].max() <= TINY)
    return figure(pictures.get(row), lines, tiny=tiny)


def _classes(diagnosis: Diagnosis) -> str:
    classes = diagnosis.classes
    if classes is None:
        return ""
    splits = list(diagnosis.scan.count_examples())
    most = max(1, int(classes.in_training.max(initial=0)))
    head = "".join(f'<th class="number">{text(name)}</th>' for name in splits)
    lines = []
    for i, name in enumerate(classes.names[:MAX_CLASSES]):
        counts = "".join(
            f'<td class="number">{classes.counts[SPLITS.index(split), i]}</td>'
            for split in splits
        )
        share = int(classes.in_training[i]) / most
        shown = f'<td>{breakable(name)}</td>{counts}<td class="bars">{bar(share)}</td>'
        lines.append(f"<tr>{shown}</tr>")
    hidden = len(classes.names) - len(lines)
    more = f'<p class="soft">{hidden} more in data_report.json</p>' if hidden else ""
    return (
        "<section><h2>Classes: images that can be read</h2><table>"
        f"<thead><tr><th>class</th>{head}<th></th></tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table>{more}</section>"
    )
