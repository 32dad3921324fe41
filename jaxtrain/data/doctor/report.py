"""What was found out, and `data_report.json` of it; docs/doctor.md has the keys."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxtrain.config import Config
from jaxtrain.data.doctor.finding import Finding
from jaxtrain.data.doctor.scan import Scan
from jaxtrain.data.image_source import Source


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """All that was found out about a data set.

    Attributes:
      config: Config of the run that it is for.
      train: The training split, as the run reads it.
      scan: What was seen of each example.
      findings: The worst first.
      label_noise: Kind of finding -> estimated part of the labels that is wrong.
      seconds: Time that it took.
    """

    config: Config
    train: Source
    scan: Scan
    findings: list[Finding]
    label_noise: Mapping[str, float]
    seconds: float

    @property
    def source(self) -> str:
        return self.config.data.source

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.level == "error"]


def to_json(diagnosis: Diagnosis) -> bytes:
    """Return the report; what is no text in the name of a file is escaped."""
    scan = diagnosis.scan
    bad = scan.count_unreadable()
    mean, std = scan.statistics()
    report = {
        "source": diagnosis.source,
        "ok": not diagnosis.errors,
        "num_examples": len(scan),
        "splits": {
            name: {"num_examples": num, "num_unreadable": bad[name]}
            for name, num in scan.count_examples().items()
        },
        "formats": scan.formats,
        "modes": scan.modes,
        "sizes": scan.describe_sizes(),
        "mean": mean,
        "std": std,
        "classes": None
        if scan.labels is None
        else [{"name": name, **sizes} for name, sizes in scan.class_sizes()],
        "label_noise": diagnosis.label_noise,
        "findings": [_finding(scan, finding) for finding in diagnosis.findings],
        "seconds": diagnosis.seconds,
    }
    return (json.dumps(report, indent=1, allow_nan=False) + "\n").encode()


def _finding(scan: Scan, finding: Finding) -> dict[str, Any]:
    examples, grouped = [], finding.grouped
    for number, group in enumerate(finding.groups):
        for row in group:
            optional = {
                "label": scan.class_of(row),
                "detail": finding.details.get(row),
                "group": number if grouped else None,
            }
            examples.append(
                {"name": scan.names[row], "split": scan.split_of(row)}
                | {key: value for key, value in optional.items() if value is not None}
            )
    return {
        "kind": finding.kind,
        "level": finding.level,
        "title": finding.title,
        "advice": finding.advice,
        "examples": examples,
    }
