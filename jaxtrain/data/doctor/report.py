"""`data_report.json`: all that was found, for programs; docs/doctor.md has the keys."""

import json
from typing import Any

from jaxtrain.data.doctor.checks import describe_sizes
from jaxtrain.data.doctor.diagnosis import Diagnosis
from jaxtrain.data.doctor.finding import Finding
from jaxtrain.data.doctor.scan import SPLITS


def to_json(diagnosis: Diagnosis) -> bytes:
    """Return the report; what is no text in the name of a file is escaped."""
    return (json.dumps(describe(diagnosis), indent=1, allow_nan=False) + "\n").encode()


def describe(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the report as values of JSON."""
    scan = diagnosis.scan
    bad = scan.count_unreadable()
    return {
        "source": diagnosis.source,
        "ok": not diagnosis.errors,
        "num_examples": len(scan),
        "splits": {
            name: {"num_examples": num, "num_unreadable": bad[name]}
            for name, num in scan.count_examples().items()
        },
        "formats": dict(scan.formats),
        "modes": dict(scan.modes),
        "sizes": describe_sizes(scan),
        "mean": list(scan.mean),
        "std": list(scan.std),
        "classes": _classes(diagnosis),
        "label_noise": dict(diagnosis.label_noise),
        "findings": [_finding(diagnosis, finding) for finding in diagnosis.findings],
        "seconds": diagnosis.seconds,
    }


def _classes(diagnosis: Diagnosis) -> list[dict[str, Any]] | None:
    classes = diagnosis.classes
    if classes is None:
        return None
    splits = [SPLITS.index(name) for name in diagnosis.scan.count_examples()]
    return [
        {
            "name": name,
            **{SPLITS[split]: int(classes.counts[split, i]) for split in splits},
        }
        for i, name in enumerate(classes.names)
    ]


def _finding(diagnosis: Diagnosis, finding: Finding) -> dict[str, Any]:
    scan, grouped = diagnosis.scan, any(len(group) > 1 for group in finding.groups)
    examples = []
    for number, group in enumerate(finding.groups):
        for row in group:
            example: dict[str, Any] = {
                "name": scan.names[row],
                "split": diagnosis.split(row),
            }
            if diagnosis.classes is not None:
                example["label"] = diagnosis.label(row)
            if row in finding.details:
                example["detail"] = finding.details[row]
            if grouped:
                example["group"] = number
            examples.append(example)
    return {
        "kind": finding.kind,
        "level": finding.level,
        "title": finding.title,
        "advice": finding.advice,
        "examples": examples,
    }
