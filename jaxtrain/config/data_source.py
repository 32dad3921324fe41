"""Fields of the section `data` for the source and its splits."""

from dataclasses import dataclass
from typing import Annotated, Literal

from jaxtrain.config.base import Section, row_of
from jaxtrain.config.metadata import field


@dataclass(frozen=True, kw_only=True)
class SourceFields(Section):
    """Source of the images and its splits."""

    source: Annotated[str, row_of("jaxtrain.data:SOURCES", exact=False)] = field(
        default="digits",
        help="Source of the images: KIND:PATH or KIND:NAME, such as folder:photos or "
        "tfds:mnist; or a custom source: path/to/file.py:name or package.module:name.",
        shared="unless same data",
        may_change_on_resume="same data",
        common=True,
        other_names="data dataset data_dir",
        free_in_evaluation=True,
        of_validation=True,
    )
    data_dir: str | None = field(
        default=None,
        help="Directory of TFDS data sets; None: $TFDS_DATA_DIR, else "
        "~/tensorflow_datasets.",
        shared="never",
        may_change_on_resume=True,
        of_source=True,
        forms="tfds:NAME",
        free_in_evaluation=True,
    )
    include: str | None = field(
        default=None,
        help="File that lists the files to use from a folder:, masks:, csv: or audio: "
        "source: one path per line, relative to the directory of the source.",
        shared="unless same data",
        may_change_on_resume="same data",
        of_source=True,
        forms="folder:DIR masks:DIR csv:FILE audio:DIR_OR_FILE.csv",
        free_in_evaluation=True,
    )
    allow_outside: bool = field(
        False,
        help="Whether files of a folder:, masks:, csv:, coco:, yolo: or audio: source "
        "may be outside the directory of the source: through links, absolute paths or "
        "`..` in a table.",
        may_change_on_resume="same data",
        of_source=True,
        forms="folder:DIR masks:DIR csv:FILE coco:FILE yolo:DIR audio:DIR_OR_FILE.csv",
    )
    images_dir: str | None = field(
        default=None,
        help="Directory of the images of a coco: source; None: a directory next to the "
        "annotation file.",
        shared="unless same data",
        of_source=True,
        forms="coco:FILE",
        free_in_evaluation=True,
    )
    boxes_drawn_on: Literal["stored", "upright"] | None = field(
        None,
        help="Orientation in which images with an EXIF rotation were annotated with "
        "boxes or masks: as in the file (stored), or rotated (upright); None: upright, "
        "with a warning.",
        of_source=True,
        forms="coco:FILE yolo:DIR masks:DIR csv:FILE hf:NAME_OR_DIR",
        free_in_evaluation=True,
    )
    max_boxes: int = field(
        500,
        help="Maximum number of boxes per image in a coco: or yolo: source; more boxes "
        "are an error.",
        of_source="kind",
        forms="coco:FILE yolo:DIR",
        free_in_evaluation=True,
    )
    targets: tuple[str, ...] = field(
        (),
        help="Columns of numeric targets, instead of one class per image: names of "
        "columns of a csv:, hf: or audio: source; for an arrays: source, names for the "
        "columns of the array `label`.",
        may_change_on_resume="same data",
        of_source="kind",
        forms="csv:FILE hf:NAME_OR_DIR arrays:FILE.npz audio:DIR_OR_FILE.csv",
        free_in_evaluation=True,
    )
    label_separator: str | None = field(
        None,
        help='Separator between labels, such as ";", in the column `label` of a csv: '
        "or audio: table; the targets are then multi-hot.",
        may_change_on_resume="same data",
        of_source="kind",
        forms="csv:FILE audio:DIR_OR_FILE.csv",
        free_in_evaluation=True,
    )
    classes: str | None = field(
        default=None,
        help="Class file for the masks of a masks:, csv: or hf: source. Each line is "
        "NAME or NAME,R,G,B. None: classes.txt or classes.csv next to the images.",
        shared="unless same data",
        forms="masks:DIR csv:FILE hf:NAME_OR_DIR",
        free_in_evaluation=True,
    )
    train_split: str = field(
        "train",
        help="Training split, in TFDS syntax, such as train[:90%] or train+test[:100].",
        of_source=True,
        free_in_evaluation=True,
        of_validation=True,
    )
    validation_split: str | None = field(
        None,
        help="Validation split; None: the split `validation` of the data set, else a "
        "held-out fraction of the training split.",
        of_source=True,
        free_in_evaluation=True,
        of_validation=True,
    )
    test_split: str = field(
        "test",
        help="Test split, evaluated once, at the end of the run.",
        of_source=True,
        free_in_evaluation=True,
    )
    test_fraction: float | None = field(
        None,
        help="Fraction of the training split held out as the test split if the data "
        "set has no test split; None: 0.1. The held-out examples are stratified by "
        "class, and do not depend on the seed.",
        of_source=True,
        free_in_evaluation=True,
        held_out=True,
    )
    validation_fraction: float = field(
        0.1,
        help="Fraction of the training split held out as the validation split if the "
        "data set has no validation split; 0: no validation. The held-out examples are "
        "stratified by class, and depend on the seed.",
        common=True,
        free_in_evaluation=True,
        held_out=True,
        of_validation=True,
    )
    hold_out: Literal["examples", "classes"] = field(
        "examples",
        help="Part of the training split to hold out; examples: some examples of each "
        "class; classes: entire classes, to evaluate embeddings on unseen classes (the "
        "data set's own validation and test splits are ignored).",
        of_source=True,
        free_in_evaluation=True,
        held_out=True,
        unusual="the model cannot predict classes that are missing in training",
    )
    allow_overlap: bool = field(
        False,
        help="Whether splits may share examples, for example to check that a model can "
        "overfit a few images.",
        may_change_on_resume=True,
        of_source=True,
        free_in_evaluation=True,
    )

    def validate(self) -> None:
        self._positive("max_boxes")
        self._fraction("validation_fraction")
        self._all(["test_fraction"], lambda part: 0 < part < 1, "above 0, below 1")
        self._check(
            "targets", len({*self.targets}) == len(self.targets), "unique names"
        )
        self._check("label_separator", self.label_separator != "", "a nonempty string")
