"""Fields of the section `data` for the source and its splits."""

from dataclasses import dataclass
from typing import Annotated, Literal

from jaxtrain.config.base import Section, row_of
from jaxtrain.config.metadata import field


@dataclass(frozen=True, kw_only=True)
class SourceFields(Section):
    """Source of the images, and its splits."""

    source: Annotated[str, row_of("jaxtrain.data:SOURCES", exact=False)] = field(
        default="digits",
        help="Where the images come from: a kind and what it takes, such as "
        "folder:photos or tfds:mnist; or one of your own: path/to/file.py:name or "
        "package.module:name.",
        shared="unless same data",
        may_change_on_resume="same data",
        common=True,
        other_names="data dataset data_dir",
        free_in_evaluation=True,
        of_validation=True,
    )
    data_dir: str | None = field(
        default=None,
        help="Where TFDS data sets lie; None: $TFDS_DATA_DIR, else "
        "~/tensorflow_datasets.",
        shared="never",
        may_change_on_resume=True,
        of_source=True,
        forms="tfds:NAME",
        free_in_evaluation=True,
    )
    include: str | None = field(
        default=None,
        help="File that lists the images to use, of a folder:, masks: or csv: source: "
        "a path a line, relative to its folder.",
        shared="unless same data",
        may_change_on_resume="same data",
        of_source=True,
        forms="folder:DIR masks:DIR csv:FILE audio:DIR_OR_FILE.csv",
        free_in_evaluation=True,
    )
    allow_outside: bool = field(
        False,
        help="Whether images of a folder:, masks:, csv:, coco: or yolo: source may "
        "lie outside of its folder: through links, and by absolute paths or `..` in a "
        "table.",
        may_change_on_resume="same data",
        of_source=True,
        forms="folder:DIR masks:DIR csv:FILE coco:FILE yolo:DIR audio:DIR_OR_FILE.csv",
    )
    images_dir: str | None = field(
        default=None,
        help="Folder of the images of a coco: source; None: one next to its file.",
        shared="unless same data",
        of_source=True,
        forms="coco:FILE",
        free_in_evaluation=True,
    )
    boxes_drawn_on: Literal["stored", "upright"] | None = field(
        None,
        help="Pixels that boxes or masks were drawn on, where EXIF data turn an "
        "image: those in the file (stored), or the turned ones (upright); None: "
        "upright, with a remark.",
        of_source=True,
        forms="coco:FILE yolo:DIR masks:DIR csv:FILE hf:NAME_OR_DIR",
        free_in_evaluation=True,
    )
    max_boxes: int = field(
        500,
        help="Largest number of boxes of an image, of a coco: or yolo: source; an "
        "image with more is an error.",
        of_source="kind",
        forms="coco:FILE yolo:DIR",
        free_in_evaluation=True,
    )
    targets: tuple[str, ...] = field(
        (),
        help="Columns of the targets, a number each, in place of one class an image: "
        "by their names in a csv:, hf: or audio: source; names for those of `label` "
        "of an arrays: source.",
        may_change_on_resume="same data",
        of_source="kind",
        forms="csv:FILE hf:NAME_OR_DIR arrays:FILE.npz audio:DIR_OR_FILE.csv",
        free_in_evaluation=True,
    )
    label_separator: str | None = field(
        None,
        help='Separator of labels, such as ";", in the column `label` of a csv: or '
        "audio: table, where an example may have several: the targets are then "
        "columns of 0 and 1.",
        may_change_on_resume="same data",
        of_source="kind",
        forms="csv:FILE audio:DIR_OR_FILE.csv",
        free_in_evaluation=True,
    )
    classes: str | None = field(
        default=None,
        help="File of the classes of masks, of a masks:, csv: or hf: source, a line "
        "each: name, or name,R,G,B; None: classes.txt or classes.csv beside the "
        "images.",
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
        help="Validation split; None: the set's own, else a held-out fraction of the "
        "training split.",
        of_source=True,
        free_in_evaluation=True,
        of_validation=True,
    )
    test_split: str = field(
        "test",
        help="Test split, used once, at the end.",
        of_source=True,
        free_in_evaluation=True,
    )
    test_fraction: float | None = field(
        None,
        help="Stratified fraction of the training split, the same for every seed, "
        "that is the test split where there is none of the name `test`; None: 0.1.",
        of_source=True,
        free_in_evaluation=True,
        held_out=True,
    )
    validation_fraction: float = field(
        0.1,
        help="Seeded, stratified fraction of the training split held out for "
        "validation when there is no validation split; 0: no validation.",
        common=True,
        free_in_evaluation=True,
        held_out=True,
        of_validation=True,
    )
    hold_out: Literal["examples", "classes"] = field(
        "examples",
        help="What is held out of the training split: examples of all classes; or "
        "whole classes, to judge embeddings by classes that were not trained on: a "
        "set's own splits named test and validation are then left aside.",
        of_source=True,
        free_in_evaluation=True,
        held_out=True,
        unusual="it cannot tell classes that it was not trained on",
    )
    allow_overlap: bool = field(
        False,
        help="Let splits share examples, such as to see that a model can learn a few "
        "by heart.",
        may_change_on_resume=True,
        of_source=True,
        free_in_evaluation=True,
    )

    def validate(self) -> None:
        self._positive("max_boxes")
        self._fraction("validation_fraction")
        self._all(["test_fraction"], lambda part: 0 < part < 1, "above 0, below 1")
        self._check("targets", len({*self.targets}) == len(self.targets), "each once")
        self._check("label_separator", self.label_separator != "", "a text")
