"""The section `data`: source, splits, size, batches."""

from dataclasses import dataclass
from typing import Annotated, Literal

from jaxtrain.config import data_combinations
from jaxtrain.config.augment import AugmentConfig
from jaxtrain.config.base import Options, Section, report, row_of
from jaxtrain.config.combinations import check
from jaxtrain.config.data_combinations import CROP_MODE, CROP_PCT, INTERPOLATION
from jaxtrain.config.metadata import field, with_metadata
from jaxtrain.config.sound import SoundConfig

Interpolation = Literal["bilinear", "bicubic"]
CropMode = Literal["center", "squash", "border"]


@dataclass(frozen=True, kw_only=True)
class DataConfig(Section):
    """Data: the images, their splits, size and batches."""

    # Where the images come from: a kind and what it takes, such as folder:photos or
    # tfds:mnist; or one of your own: path/to/file.py:name or package.module:name.
    source: Annotated[str, row_of("jaxtrain.data:SOURCES", exact=False)] = field(
        default="digits",
        shared="unless same data",
        may_change_on_resume="same data",
        common=True,
        other_names="data dataset data_dir",
        free_in_evaluation=True,
    )
    # Where TFDS data sets lie; None: $TFDS_DATA_DIR, else ~/tensorflow_datasets.
    data_dir: str | None = field(
        default=None,
        shared="never",
        may_change_on_resume=True,
        of_source=True,
        forms="tfds:NAME",
        free_in_evaluation=True,
    )
    # A file that lists the images to keep, of a folder:, masks: or csv: source: their
    # places below its folder, one a line.
    include: str | None = field(
        default=None,
        shared="unless same data",
        may_change_on_resume="same data",
        of_source=True,
        forms="folder:DIR masks:DIR csv:FILE audio:DIR_OR_FILE.csv",
        free_in_evaluation=True,
    )
    # Whether images of a folder:, masks:, csv:, coco: or yolo: source may lie outside
    # of its folder: through links, and by absolute paths or `..` in a table.
    allow_outside: bool = field(
        False,
        may_change_on_resume="same data",
        of_source=True,
        forms="folder:DIR masks:DIR csv:FILE coco:FILE yolo:DIR audio:DIR_OR_FILE.csv",
    )
    # Folder of the images of a coco: source; None: looked for beside its file.
    images_dir: str | None = field(
        default=None,
        shared="unless same data",
        of_source=True,
        forms="coco:FILE",
        free_in_evaluation=True,
    )
    # Pixels that boxes or masks were drawn on, where EXIF data turn an image: those in
    # the file (stored), or the turned ones (upright); None: upright, with a remark.
    boxes_drawn_on: Literal["stored", "upright"] | None = field(
        None,
        of_source=True,
        forms="coco:FILE yolo:DIR masks:DIR csv:FILE hf:NAME_OR_DIR",
        free_in_evaluation=True,
    )
    # Boxes of an image, of a coco: or yolo: source, at most; one with more is an error.
    max_boxes: int = field(
        500, of_source="kind", forms="coco:FILE yolo:DIR", free_in_evaluation=True
    )
    # Columns of the targets, a number each, in place of one class an image: by their
    # names in a csv:, hf: or audio: source; names for those of `label` of an arrays:
    # source.
    targets: tuple[str, ...] = field(
        (),
        may_change_on_resume="same data",
        of_source="kind",
        forms="csv:FILE hf:NAME_OR_DIR arrays:FILE.npz audio:DIR_OR_FILE.csv",
        free_in_evaluation=True,
    )
    # What separates labels in the column `label` of a table, csv: or audio:, where an
    # example may have several, such as ";": columns of 0 and 1.
    label_separator: str | None = field(
        None,
        may_change_on_resume="same data",
        of_source="kind",
        forms="csv:FILE audio:DIR_OR_FILE.csv",
        free_in_evaluation=True,
    )
    # File of the classes of masks, of a masks:, csv: or hf: source, a line each: name,
    # or name,R,G,B; None: classes.txt or classes.csv beside the images.
    classes: str | None = field(
        default=None,
        shared="unless same data",
        forms="masks:DIR csv:FILE hf:NAME_OR_DIR",
        free_in_evaluation=True,
    )
    # Training split, in TFDS syntax, such as train[:90%] or train+test[:100].
    train_split: str = field("train", of_source=True, free_in_evaluation=True)
    # Validation split; None: the set's own, else a held-out fraction of the training
    # split.
    validation_split: str | None = field(None, of_source=True, free_in_evaluation=True)
    # Test split, used once, at the end.
    test_split: str = field("test", of_source=True, free_in_evaluation=True)
    # Stratified fraction of the training split, the same for every seed, that is the
    # test split where there is none of the name `test`; None: 0.1.
    test_fraction: float | None = field(None, of_source=True, free_in_evaluation=True)
    # Seeded, stratified fraction of the training split held out for validation when
    # there is no validation split; 0: no validation.
    validation_fraction: float = field(0.1, common=True, free_in_evaluation=True)
    # What is held out of the training split: examples of all classes; or whole classes,
    # to judge embeddings by classes that were not trained on: a set's own splits named
    # test and validation are then left aside.
    hold_out: Literal["examples", "classes"] = field(
        "examples", of_source=True, free_in_evaluation=True
    )
    # Let splits share examples, such as to see that a model can learn a few by heart.
    allow_overlap: bool = field(
        False, may_change_on_resume=True, of_source=True, free_in_evaluation=True
    )
    # How an epoch is drawn: every example once (shuffle), or as many of each class,
    # those of small classes several times (balanced).
    sampling: Literal["shuffle", "balanced"] = "shuffle"
    # Times that an example is in a batch, each time augmented otherwise (Hoffer et al.
    # 2020); an epoch then has so many times fewer examples.
    repeats: int = 1
    # Examples in a global batch: of all devices and processes, of one optimizer step.
    batch_size: int = field(128, common=True, other_names="bs batch batch_size")
    # Examples in a global batch of an evaluation; None: as batch_size.
    eval_batch_size: int | None = field(
        None, may_change_on_resume=True, free_in_evaluation=True
    )
    # Height and width in pixels that images are resized to; None: as stored.
    image_size: int | None = field(
        None, common=True, other_names="img_size image_size imgsz"
    )
    # Height and width of the training images, where they are smaller than those that
    # the model is evaluated and used on (Touvron et al. 2019, arXiv:1906.06423).
    train_image_size: int | None = None
    # Height and width of the training images over the run, each for an equal part of
    # its epochs, the last of them train_image_size or image_size; (): always that.
    progressive_sizes: tuple[int, ...] = ()
    # Of masks: height and width at which evaluations and predictions see whole images,
    # in windows of image_size that overlap, whose probabilities are averaged; None:
    # they see images of image_size.
    sliding_size: int | None = None
    # Of the shorter side, what is kept of images that are made smaller, but for the
    # random windows of training; None: as of the pretrained weights, else 0.875.
    crop_pct: float | None = field(None, from_weights="resizing")
    # How images of other shapes become square: by the centre (center), stretched as a
    # whole (squash), or as a whole between grey borders (border); None: as of the
    # pretrained weights, else center.
    crop_mode: CropMode | None = field(None, from_weights="resizing")
    # How images are resized: bilinear or bicubic, both antialiased; None: as of the
    # pretrained weights, else bilinear.
    interpolation: Interpolation | None = field(None, from_weights="resizing")
    # 1: grey, 3: colour; None: as stored.
    channels: int | None = None
    # Value of images of 16 bits a channel that is white, such as 4095 of those with 12
    # bits of data; None: 65535.
    white_level: int | None = None
    # An image file of more pixels is unreadable: it could fill the memory.
    max_pixels: int = field(2**26, free_in_evaluation=True)
    # Part of a split's images, rounded up, that may be unreadable: in training others
    # of their classes take their places, evaluations leave them out. Of a coco: list
    # also the part of its images, and of its boxes, that may be left out as damaged.
    max_bad_fraction: float = field(0.02, free_in_evaluation=True)
    # Mean of each channel, in 0..1, subtracted; None: that of the pretrained weights,
    # else computed from the training split.
    mean: tuple[float, ...] | None = field(None, from_weights="statistics")
    # Standard deviation of each channel, in 0..1, divided by; None: likewise.
    std: tuple[float, ...] | None = field(None, from_weights="statistics")
    # Clips of an audio: source, and their spectrograms.
    sound: SoundConfig = field(default_factory=SoundConfig)
    # Random changes of the training images, other ones in every epoch.
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    # Keep the images on the device (device), stream them (stream), or decide by size.
    cache: Literal["auto", "device", "stream"] = field(
        "auto", may_change_on_resume=True
    )
    # Processes that decode streamed images; 0: threads of this process; None: 0 unless
    # there are many files and more than four cores.
    workers: int | None = field(
        default=None,
        shared="never",
        may_change_on_resume=True,
        other_names="workers num_workers",
        free_in_evaluation=True,
    )

    # Of a source of your own: what its function takes.
    options: Options = field(
        default_factory=dict, of_source=True, free_in_evaluation=True
    )

    def validate(self) -> None:
        self._positive("batch_size", "eval_batch_size", "image_size", "max_pixels")
        self._positive("repeats", "train_image_size", "max_boxes")
        white = self.white_level
        self._check("white_level", white is None or 0 < white < 2**16, "1 to 65535")
        self._check_training_sizes()
        self._check_sliding()
        self._fraction("validation_fraction", "max_bad_fraction")
        self._all(["test_fraction"], lambda part: 0 < part < 1, "above 0, below 1")
        self._check("channels", self.channels in (None, 1, 3), "1 or 3")
        self._not_negative("workers")
        if (self.mean is None) != (self.std is None):
            report(
                "data.mean and data.std: give both or neither", "data.mean", "data.std"
            )
        in_0_1 = "in 0..1: those of pixel values from 0 to 255, divided by 255"
        self._check("mean", all(0 <= m <= 1 for m in self.mean or ()), in_0_1)
        std = all(0 < s <= 1 for s in self.std or ())
        self._check("std", std, f"values above 0, {in_0_1}")
        self._share("crop_pct")
        self._check("targets", len({*self.targets}) == len(self.targets), "each once")
        self._check("label_separator", self.label_separator != "", "a text")
        check(self, COMBINATIONS, "data")

    @property
    def fit(self) -> tuple[float, Interpolation, CropMode]:
        """Defaults of `crop_pct`, `interpolation` and `crop_mode`."""
        return (
            self.crop_pct or CROP_PCT,
            self.interpolation or INTERPOLATION,
            self.crop_mode or CROP_MODE,
        )

    @property
    def training_sizes(self) -> tuple[int, ...]:
        """Sizes that the step gives to the training images in turn; (): image_size."""
        one = () if self.train_image_size is None else (self.train_image_size,)
        return self.progressive_sizes or one

    @property
    def seen_size(self) -> int | None:
        """Height and width of whole images in evaluations; None: as stored."""
        return self.sliding_size or self.image_size

    def _check_sliding(self) -> None:
        whole, size = self.sliding_size, self.image_size
        if whole is not None and size is not None and whole <= size:
            report(
                f"data.sliding_size = {whole}: a window of data.image_size = {size} "
                "sees all of such images: leave it out, or set a larger one",
                "data.sliding_size",
            )

    def _check_training_sizes(self) -> None:
        smaller, size = self.train_image_size, self.image_size
        if smaller is not None and (size is None or smaller >= size):
            report(
                f"data.train_image_size = {smaller} is for training on smaller images "
                f"than data.image_size = {size}, which evaluations have: leave it out, "
                "or set that to a larger size",
                "data.train_image_size",
            )
        sizes, last = self.progressive_sizes, smaller or size
        rising = list(sizes) == sorted(set(sizes)) and all(size > 0 for size in sizes)
        self._check("progressive_sizes", rising and len(sizes) != 1, "rising sizes")
        if sizes and sizes[-1] != last:
            field = "train_image_size" if smaller else "image_size"
            report(
                f"data.progressive_sizes = {sizes} ends with another size than "
                f"data.{field} = {last}, that of the last epochs",
                "data.progressive_sizes",
            )


COMBINATIONS = (
    *data_combinations.COMBINATIONS,
    *data_combinations.need_forms(with_metadata(DataConfig, "forms")),
)
