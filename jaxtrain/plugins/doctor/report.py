"""Findings, and `data_report.json`; docs/doctor.md documents the keys.

A finding has a title, a level, a meaning and advice.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from jaxtrain.config import Config
from jaxtrain.data.image_source import Source
from jaxtrain.errors import counted
from jaxtrain.plugins.doctor.scan import Scan

# Levels: the run refuses the data; training suffers; possibly intended.
Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")

# Advice for findings of `jaxtrain.trainer.data_checks`, whose titles include the fix.
REFUSED = "A run stops with these words before its first step."
# Kind -> meaning and advice.
ADVICE = {
    "task": REFUSED,
    "targets": REFUSED,
    "channels": REFUSED,
    "augment": REFUSED,
    "sampling": REFUSED,
    "split_sizes": REFUSED,
    "unreadable": "In training others of their classes take their places, evaluations "
    "leave them out: fetch them again, or take them out. More than "
    "data.max_bad_fraction of a split end a run.",
    "passed_over": "A run does not see them. Convert images of formats that are not "
    "read, move those that lie in no class into one, and leave the rest.",
    "nested": "The class of an image is the folder that its split begins with, however "
    "deep it lies: if the inner folders are the classes, list them in a csv: file.",
    "classes_left_out": "The model has no output for them: leave it so, or add what is "
    "missing.",
    "grey_levels": "A run sees 8 bits: the option says which value becomes white.",
    "bands": "Files are read as grey or colour: what is known of more bands is in "
    "arrays alone.",
    "cut_away": "Evaluations and predictions see the centred square: keep the whole "
    "image with data.crop_mode = border, or stretch it with squash.",
    "extension": "They are read by what they hold; rename them, so that nothing else "
    "trips over them.",
    "animated": "Only the first picture is used: save the one that is meant.",
    "rotated": "They are turned upright when they are read.",
    "rotated_targets": "They are turned upright when they are read, and the targets "
    "are taken as drawn on the upright image, as labelling tools show it. Look at some "
    "with data --preview: if they do not fit, set data.boxes_drawn_on to stored, which "
    "turns them too, else to upright.",
    "boxes_left_out": "They are not learnt, nor measured: mend them, or leave them.",
    "boxes_clipped": "They are cut at the border of their image. If there are many, "
    "see whether they were made for images of another size.",
    "images_left_out": "A run does not see them: mend them, or take them out of the "
    "list. More than data.max_bad_fraction of a split end a run.",
    "alpha": "Transparent pixels show white, whatever colour they hide.",
    "modes": "All are turned into the channels of the run. Grey ones among colour ones "
    "may tell where an image comes from, and so its class.",
    "clipped": "The loudest parts are distorted: record them again at a lower level, "
    "or see that it is so in every class.",
    "rates": "All are resampled to data.sound.sample_rate, and channels become their "
    "mean. Those stored in another way may tell where a sound comes from, and so its "
    "class.",
    "silent": "Nothing can be learnt from them: look where they come from, and take "
    "them out.",
    "length_long": "Only the middle is heard, or with data.sound.random_crop a random "
    "part: raise data.sound.seconds if more matters.",
    "length_short": "Silence is put on both sides: if most are, lower "
    "data.sound.seconds; if few are, look whether they are cut off.",
    "boxes_lost": "What is not seen cannot be found.",
    "boxes_unseen": "A model cannot learn them: add training images that show them, or "
    "take the classes out.",
    "boxes_few": "Too few to learn from: collect more, or join classes.",
    "sizes": "The images of a batch have one size: set data.image_size in the recipe.",
    "aspect": "Look whether they show what they should.",
    "blank": "Nothing can be learnt from them: look where they come from, and take "
    "them out.",
    "duplicates": "They count several times in what is learnt, or measured: keep one.",
    "duplicates_leak": "What a model has seen in training it may know by heart: the "
    "result looks better than it is. Keep them in one split.",
    "duplicates_conflict": "At least one label is wrong: keep one, with the label that "
    "is right.",
    "near": "The same picture saved in another way, or a series of photographs: such "
    "belong into one split together.",
    "near_leak": "What a model has seen in training it may know by heart: the result "
    "looks better than it is. Keep what belongs together in one split.",
    "near_conflict": "A label may be wrong, or the classes cannot be told apart by the "
    "image: look at them.",
    "labels_missing": "They count in no loss and no metric: mend them, or choose a "
    "split that has labels.",
    "one_class": "There is nothing to tell apart: training needs readable images of "
    "two classes or more.",
    "class_unreadable": "In training nothing can take the places of their images, and "
    "a run ends when it meets one: mend the files, or take the classes out.",
    "class_untrained": "A model cannot learn them, and is measured by them: give "
    "training some, or take them out.",
    "class_empty": "The model has an output for each, which is never right: take them "
    "out.",
    "label_constant": "Nothing can be learnt of them: leave them out of data.targets "
    "or the lists of labels, or add images.",
    "label_few": "Too few to learn from, and to hold any out for validation: collect "
    "more, or leave the label out.",
    "label_missing": "They are left out of the loss and the metrics: see that they "
    "are missing for no reason that the label has to do with.",
    "class_few": "Too few to learn from, and to hold any out for validation: collect "
    "more, join classes, or take them out.",
    "imbalance": "A model is right often by naming large classes alone: look at "
    "balanced_accuracy and recall, and not at accuracy.",
    "target_unfit": "In training others take their places, evaluations leave them out: "
    "mend them, or take the images out. More than data.max_bad_fraction of a split, "
    "with the images that cannot be read, end a run.",
    "pixels_untrained": "A model cannot learn them, and is measured by them: give "
    "training images that show them, or take them out.",
    "pixels_none": "The model has an output for each, which is never right: take them "
    "out of the list of classes, or see whether the masks have other numbers.",
    "pixels_rare": "A model does well without them: look at the iou of each class.",
    "numbers_far": "Errors of that size may rule the loss: look at them, and mend the "
    "numbers.",
    "wrong_labels": "A trained model is confident of another class. Some of these are "
    "its own mistakes: look at them before you change a label.",
    "in_sample": "The model has learnt these labels, the wrong ones too: it agrees "
    "with more of them than it should. What it still doubts is worth a look.",
}
# Advice for other remarks of a source.
OTHER = "A run does the same: see whether it is meant."
# Kinds that may be errors: runs use the same functions of
# `jaxtrain.trainer.data_checks`, `images.lacks_size` and `defects`.
ERRORS = frozenset(
    {
        *(kind for kind, advice in ADVICE.items() if advice is REFUSED),
        "one_class",
        "sizes",
        "unreadable",
        "target_unfit",
        "class_unreadable",
    }
)


@dataclass(frozen=True)
class Finding:
    """A finding of a check.

    Attributes:
      kind: Kind of the finding, a key of `ADVICE`.
      level: Severity of the finding.
      title: Title of one line.
      groups: Rows of the scan, grouped by what belongs together.
      details: Row -> detail to print.
      hint: Additional advice for the config of the run.
    """

    kind: str
    level: Level
    title: str
    groups: Sequence[Sequence[int]] = ()
    details: Mapping[int, str] = field(default_factory=dict)
    hint: str = ""

    def __post_init__(self) -> None:
        assert self.level != "error" or self.kind in ERRORS, self.kind

    @property
    def advice(self) -> str:
        return f"{ADVICE.get(self.kind, OTHER)} {self.hint}".rstrip()

    @property
    def num_examples(self) -> int:
        return sum(map(len, self.groups))

    @property
    def grouped(self) -> bool:
        """Whether any group has several rows."""
        return any(len(group) > 1 for group in self.groups)


def of_rows(
    kind: str,
    level: Level,
    title: str,
    rows: Sequence[int],
    details: Mapping[int, str] | None = None,
    noun: str = "image",
    hint: str = "",
) -> list[Finding]:
    """Create a finding about single images or sounds; none without rows.

    `{}` in `title` is replaced by their number; other braces belong to names.
    """
    if not rows:
        return []
    title = title.replace("{}", counted(len(rows), noun), 1)
    groups = [[row] for row in rows]
    return [Finding(kind, level, title, groups, details or {}, hint)]


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Result of a check of a data set.

    Attributes:
      config: Config of the run.
      task: Name of the checked task; None if no task was checked.
      train: Training split of the run.
      scan: Scan of all examples.
      findings: All findings, worst first.
      label_noise: Kind of finding -> estimated fraction of wrong labels.
      seconds: Duration in seconds.
    """

    config: Config
    task: str | None
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
    """Contents of the report; undecodable bytes of file names are escaped."""
    scan = diagnosis.scan
    bad = scan.count_unreadable()
    mean, std = scan.statistics()
    report = {
        "source": diagnosis.source,
        "task": diagnosis.task,
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
