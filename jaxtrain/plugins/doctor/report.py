"""Findings, and `data_report.json`, whose keys are documented in docs/doctor.md.

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

# error: a run would fail; warning: training suffers; note: possibly intended.
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
    "unreadable": "Training replaces unreadable examples by others of their classes, "
    "and evaluations leave them out: fetch the files again, or remove them. A run ends "
    "if more than data.max_bad_fraction of a split is unreadable.",
    "passed_over": "A run ignores these files. Convert images of unsupported formats, "
    "and move images outside class folders into a class folder; other files may stay.",
    "nested": "The class of an image is the outermost folder within the split: if the "
    "inner folders are the classes, list the images in a csv: file.",
    "classes_left_out": "The model has no output for these classes: add images of "
    "them if they are needed.",
    "grey_levels": "Runs convert images to 8 bits: data.white_level is the value that "
    "becomes white.",
    "bands": "Files are read as grey or colour images: more bands are supported only "
    "in arrays.",
    "cut_away": "Evaluations and predictions use the centred square: keep the full "
    "image with data.crop_mode = border, or squash it with data.crop_mode = squash.",
    "extension": "Files are decoded by their content; rename them, so that other "
    "programs can read them.",
    "animated": "Only the first frame is used: save the intended frame.",
    "rotated": "The images are rotated upright when they are read.",
    "rotated_targets": "The images are rotated upright when they are read, and their "
    "targets are assumed to be drawn on the upright image, as labelling tools show it. "
    "Check some images with data --preview: if the targets do not fit, set "
    "data.boxes_drawn_on to stored, which rotates the targets too, else to upright.",
    "boxes_left_out": "Training and evaluations ignore these boxes: correct them if "
    "they are needed.",
    "boxes_clipped": "The boxes are clipped to their image. If there are many, check "
    "whether they were drawn on images of another size.",
    "images_left_out": "A run ignores these images: correct them, or remove them from "
    "the list. A run ends if they are more than data.max_bad_fraction of a split.",
    "alpha": "Transparent pixels become white, whatever their colour.",
    "modes": "All images are converted to the channels of the run. Grey images among "
    "colour images may reveal the origin of an image, and so its class.",
    "clipped": "The loudest parts are distorted: record the sounds again at a lower "
    "level, or check that clipping is equally frequent in all classes.",
    "rates": "All sounds are resampled to data.sound.sample_rate, and their channels "
    "are averaged. An unusual format may reveal the origin of a sound, and so its "
    "class.",
    "silent": "A model cannot learn from silence: check the origin of these sounds, "
    "and remove them.",
    "length_long": "Only the middle of a long sound is used, or a random part with "
    "data.sound.random_crop: raise data.sound.seconds if the rest matters.",
    "length_short": "Short sounds are padded with silence on both sides: if most are "
    "short, lower data.sound.seconds; if few are, check whether they are truncated.",
    "boxes_lost": "A model cannot detect objects that it does not see.",
    "boxes_unseen": "A model cannot learn classes without visible boxes: add training "
    "images with visible boxes, or remove the classes.",
    "boxes_few": "The boxes are too few to learn from: collect more, or merge classes.",
    "sizes": "The images of a batch must have the same size: set data.image_size in "
    "the recipe.",
    "aspect": "Check whether these are the intended images.",
    "blank": "A model cannot learn from images without content: check their origin, "
    "and remove them.",
    "duplicates": "Duplicates count several times in training or evaluations: keep one "
    "of each group.",
    "duplicates_leak": "The model may memorise training images, so that metrics on "
    "equal images are too good. Keep equal images in one split.",
    "duplicates_conflict": "At least one label is wrong: keep one image, with the "
    "right label.",
    "near": "Similar images may be copies saved in different ways, or a series of "
    "photographs: keep them in one split.",
    "near_leak": "The model may memorise training images, so that metrics on similar "
    "images are too good. Keep similar images in one split.",
    "near_conflict": "A label may be wrong, or images do not distinguish these "
    "classes: inspect the images.",
    "labels_missing": "Losses and metrics ignore examples with invalid labels: correct "
    "the labels, or choose a split with labels.",
    "one_class": "Training needs readable images of two classes or more.",
    "class_unreadable": "Training cannot replace unreadable images by others of their "
    "class, and a run ends when it reads one: repair the files, or remove the classes.",
    "class_untrained": "A model cannot learn classes without training images, but "
    "evaluations include them: add training images, or remove the classes.",
    "class_empty": "Empty classes have outputs in the model, but no examples to learn "
    "from: remove the classes.",
    "label_constant": "A model cannot learn from constant columns: remove them from "
    "data.targets or the lists of labels, or add images.",
    "label_few": "The images are too few for training and for a validation split: "
    "collect more, or remove the label.",
    "label_missing": "Losses and metrics ignore missing values: check that values are "
    "missing at random, independently of the label.",
    "class_few": "The images are too few for training and for a validation split: "
    "collect more, merge classes, or remove the classes.",
    "imbalance": "A model is often right if it predicts only large classes: monitor "
    "balanced_accuracy and recall instead of accuracy.",
    "target_unfit": "Training replaces these images by others, and evaluations leave "
    "them out: correct the targets, or remove the images. A run ends if these and the "
    "unreadable images are more than data.max_bad_fraction of a split.",
    "pixels_untrained": "A model cannot learn classes without training pixels, but "
    "evaluations include them: add training images of the classes, or remove the "
    "classes.",
    "pixels_none": "Classes without pixels have outputs in the model, but no examples "
    "to learn from: remove these classes from the list, or check the values of the "
    "masks.",
    "pixels_rare": "The loss is low even if a model ignores rare classes: monitor the "
    "iou of each class.",
    "numbers_far": "Errors on outliers may dominate the loss: check the values, and "
    "correct wrong ones.",
    "wrong_labels": "A trained model is confident of another class. The model may be "
    "wrong: inspect the images before you change a label.",
    "in_sample": "The model was trained on these labels and may have memorised wrong "
    "ones, so the list may be incomplete: inspect the listed images before you change "
    "a label.",
}
# Advice for all other findings: remarks of data stores.
OTHER = "Runs read the data as described: check whether that is intended."
# Kinds of findings that may have the level "error": conditions that also stop a run.
# Runs and checks share the code: `jaxtrain.trainer.data_checks`, `images.lacks_size`
# and `defects`.
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
      kind: Kind of the finding; `ADVICE` has advice for some kinds.
      level: Severity of the finding.
      title: Description of the problem in one line.
      groups: Groups of duplicates, or groups of one example; examples are indices
        into the scan.
      details: Index of an example -> text next to its image.
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
        """Whether any group has several examples."""
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
    """Return a list with one finding about examples; empty if `rows` is empty.

    The first `{}` in `title` is replaced by the number of examples and `noun`, such as
    "3 images". Other braces in `title` are unchanged.
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
      findings: All findings, errors first.
      label_noise: Kind of finding -> estimated fraction of wrong labels.
      seconds: Duration of the check in seconds.
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
    """Return the contents of `data_report.json`.

    Undecodable bytes of file names are escaped.
    """
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
