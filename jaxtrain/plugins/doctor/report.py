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
REFUSED = "A run stops with this message before its first step."
# Kind -> meaning and advice.
ADVICE = {
    "task": REFUSED,
    "targets": REFUSED,
    "channels": REFUSED,
    "augment": REFUSED,
    "sampling": REFUSED,
    "split_sizes": REFUSED,
    "unreadable": "Training replaces them by other images of their classes, and "
    "evaluations leave them out: fetch them again, or remove them. A run ends if more "
    "than data.max_bad_fraction of a split is unreadable.",
    "passed_over": "A run ignores them. Convert images of unsupported formats, and "
    "move images outside of class folders into one of them; other files may stay.",
    "nested": "The class of an image is the first folder within its split, however "
    "deep the image lies: if the inner folders are the classes, list them in a csv: "
    "file.",
    "classes_left_out": "The model has no output for them: if they are needed, add "
    "their images.",
    "grey_levels": "A run uses 8 bits: the option says which value becomes white.",
    "bands": "Files are read as grey or colour images: more bands are supported only "
    "in arrays.",
    "cut_away": "Evaluations and predictions use the centred square: keep the full "
    "image with data.crop_mode = border, or squash it with squash.",
    "extension": "They are read by their content; rename them, so that other programs "
    "can read them.",
    "animated": "Only the first frame is used: save the intended frame.",
    "rotated": "They are rotated upright when they are read.",
    "rotated_targets": "They are rotated upright when they are read, and the targets "
    "are assumed to be drawn on the upright image, as labelling tools show it. Check "
    "some with data --preview: if they do not fit, set data.boxes_drawn_on to stored, "
    "which rotates the targets too, else to upright.",
    "boxes_left_out": "They are used neither in training nor in evaluations: correct "
    "them, or leave them.",
    "boxes_clipped": "They are clipped to their image. If there are many, check "
    "whether they were made for images of another size.",
    "images_left_out": "A run ignores them: correct them, or remove them from the "
    "list. A run ends if they are more than data.max_bad_fraction of a split.",
    "alpha": "Transparent pixels become white, whatever their colour.",
    "modes": "All are converted to the channels of the run. Grey images among colour "
    "images may reveal the origin of an image, and so its class.",
    "clipped": "The loudest parts are distorted: record them again at a lower level, "
    "or check that clipping is as frequent in every class.",
    "rates": "All are resampled to data.sound.sample_rate, and channels are averaged. "
    "The format of the others may reveal the origin of a sound, and so its class.",
    "silent": "A model cannot learn from them: check their origin, and remove them.",
    "length_long": "Only the middle is used, or with data.sound.random_crop a random "
    "part: raise data.sound.seconds if the rest matters.",
    "length_short": "They are padded with silence on both sides: if most are short, "
    "lower data.sound.seconds; if few are, check whether they are cut off.",
    "boxes_lost": "A model cannot detect objects that it does not see.",
    "boxes_unseen": "A model cannot learn them: add training images with such boxes, "
    "or remove the classes.",
    "boxes_few": "Too few to learn from: collect more, or merge classes.",
    "sizes": "The images of a batch must have one size: set data.image_size in the "
    "recipe.",
    "aspect": "Check whether these are the intended images.",
    "blank": "A model cannot learn from them: check their origin, and remove them.",
    "duplicates": "They count several times in training or evaluations: keep one of "
    "each.",
    "duplicates_leak": "The model may memorise training images, so that metrics on "
    "equal images are too good. Keep them in one split.",
    "duplicates_conflict": "At least one label is wrong: keep one image, with the "
    "right label.",
    "near": "The same image saved in another way, or a series of photographs: keep "
    "them in one split.",
    "near_leak": "The model may memorise training images, so that metrics on similar "
    "images are too good. Keep similar images in one split.",
    "near_conflict": "A label may be wrong, or images do not distinguish these "
    "classes: look at them.",
    "labels_missing": "They are ignored by losses and metrics: correct them, or choose "
    "a split with labels.",
    "one_class": "Training needs readable images of two classes or more.",
    "class_unreadable": "Training cannot replace their images by others of the class, "
    "and a run ends when it reads one: repair the files, or remove the classes.",
    "class_untrained": "A model cannot learn them, but evaluations include them: add "
    "training images, or remove the classes.",
    "class_empty": "The model has an output for each, which is never right: remove "
    "them.",
    "label_constant": "A model cannot learn from them: remove them from data.targets "
    "or the lists of labels, or add images.",
    "label_few": "Too few for training and for a validation split: collect more, or "
    "remove the label.",
    "label_missing": "They are ignored by losses and metrics: check that the reason "
    "why they are missing is independent of the label.",
    "class_few": "Too few for training and for a validation split: collect more, merge "
    "classes, or remove the classes.",
    "imbalance": "A model is often right if it predicts only large classes: monitor "
    "balanced_accuracy and recall instead of accuracy.",
    "target_unfit": "Training replaces them by other images, and evaluations leave "
    "them out: correct the targets, or remove the images. A run ends if they and the "
    "unreadable images are more than data.max_bad_fraction of a split.",
    "pixels_untrained": "A model cannot learn them, but evaluations include them: add "
    "training images that show them, or remove the classes.",
    "pixels_none": "The model has an output for each, which is never right: remove "
    "them from the list of classes, or check whether the masks have other numbers.",
    "pixels_rare": "The loss is low even if a model ignores them: monitor the iou of "
    "each class.",
    "numbers_far": "Errors of that size may dominate the loss: check the numbers, and "
    "correct wrong ones.",
    "wrong_labels": "A trained model is confident of another class. Some of these are "
    "mistakes of the model: look at them before you change a label.",
    "in_sample": "The model was trained on these labels, including the wrong ones, so "
    "it agrees with more of them than it should. Labels that it still doubts are worth "
    "checking.",
}
# Advice for other remarks of a source.
OTHER = "A run does the same: check whether this is intended."
# Kinds that may be errors. Runs check the same conditions by the same functions, of
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
      groups: Rows of the scan, in groups such as the images that are equal.
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
    """Create a finding about single images or sounds, or no finding without rows.

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
      task: Name of the checked task, or None.
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
    """Contents of the report as JSON; undecodable bytes of file names are escaped."""
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
