"""What was found out, and `data_report.json` of it; docs/doctor.md has the keys."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxtrain.config import Config
from jaxtrain.data.doctor.checks import Classes
from jaxtrain.data.doctor.finding import Finding
from jaxtrain.data.doctor.look import Rules
from jaxtrain.data.doctor.scan import SPLITS, Scan
from jaxtrain.data.stores import Store


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """All that was found out about a data set.

    Attributes:
      config: Config of the run that it is for.
      store: The set.
      rules: What its images must be.
      scan: What was seen of each example.
      classes: Their sizes; None if the targets are no classes.
      findings: The worst first.
      label_noise: Kind of finding -> estimated part of the labels that is wrong.
      seconds: Time that it took.
    """

    config: Config
    store: Store
    rules: Rules
    scan: Scan
    classes: Classes | None
    findings: list[Finding]
    label_noise: Mapping[str, float]
    seconds: float

    @property
    def source(self) -> str:
        return self.config.data.source

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.level == "error"]

    def split(self, row: int) -> str:
        """Return the name of the split of an example."""
        return SPLITS[self.scan.split[row]]

    def label(self, row: int) -> str | None:
        """Return the name of the class of an example, if it has one."""
        if self.scan.labels is None or self.classes is None:
            return None
        number = int(self.scan.labels[row])
        names = self.classes.names
        return names[number] if 0 <= number < len(names) else str(number)

    def class_sizes(self) -> list[tuple[str, dict[str, int]]]:
        """Return the number of examples of each class, by split."""
        if self.classes is None:
            return []
        names, counts = self.classes
        splits = [(name, SPLITS.index(name)) for name in self.scan.count_examples()]
        return [
            (name, {split: int(counts[code, i]) for split, code in splits})
            for i, name in enumerate(names)
        ]


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
        if diagnosis.classes is None
        else [{"name": name, **sizes} for name, sizes in diagnosis.class_sizes()],
        "label_noise": diagnosis.label_noise,
        "findings": [_finding(diagnosis, finding) for finding in diagnosis.findings],
        "seconds": diagnosis.seconds,
    }
    return (json.dumps(report, indent=1, allow_nan=False) + "\n").encode()


def _finding(diagnosis: Diagnosis, finding: Finding) -> dict[str, Any]:
    examples, grouped = [], finding.grouped
    for number, group in enumerate(finding.groups):
        for row in group:
            example: dict[str, Any] = {
                "name": diagnosis.scan.names[row],
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
