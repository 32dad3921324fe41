"""The section `data`: source, splits, size, batches."""

from dataclasses import dataclass
from typing import Literal

from jaxtrain.config import data_combinations
from jaxtrain.config.augment import AugmentConfig
from jaxtrain.config.base import Options, report
from jaxtrain.config.combinations import check
from jaxtrain.config.data_combinations import CROP_MODE, CROP_PCT, INTERPOLATION
from jaxtrain.config.data_source import SourceFields
from jaxtrain.config.metadata import field, with_metadata
from jaxtrain.config.sound import SoundConfig

Interpolation = Literal["bilinear", "bicubic"]
CropMode = Literal["center", "squash", "border"]


@dataclass(frozen=True, kw_only=True)
class DataConfig(SourceFields):
    """Data: the images, their splits, size and batches."""

    sampling: Literal["shuffle", "balanced"] = field(
        "shuffle",
        help="Sampling of an epoch: every example once (shuffle), or equally many of "
        "each class, with repeated examples of small classes (balanced).",
    )
    repeats: int = field(
        1,
        help="Repeated augmentation (Hoffer et al. 2020): number of differently "
        "augmented copies of each example in a batch. With n copies, an epoch contains "
        "1 / n of the examples.",
    )
    batch_size: int = field(
        128,
        help="Global batch size: examples per optimizer step, over all devices and "
        "processes.",
        common=True,
        other_names="bs batch batch_size",
        any_source=True,
    )
    eval_batch_size: int | None = field(
        None,
        help="Global batch size of evaluations; None: batch_size.",
        may_change_on_resume=True,
        free_in_evaluation=True,
        any_source=True,
    )
    image_size: int | None = field(
        None,
        help="Height and width in pixels that images are resized to; None: as stored.",
        common=True,
        other_names="img_size image_size imgsz",
    )
    train_image_size: int | None = field(
        None,
        help="Height and width of the training images, if smaller than image_size, "
        "which evaluation and inference use (Touvron et al. 2019, arXiv:1906.06423).",
        reset_in_evaluation=True,
    )
    progressive_sizes: tuple[int, ...] = field(
        (),
        help="Progressive resizing: heights and widths of the training images, each "
        "for an equal part of the epochs; the last is train_image_size or image_size. "
        "(): one size.",
        reset_in_evaluation=True,
    )
    sliding_size: int | None = field(
        None,
        help="Sliding-window inference for segmentation: height and width of the "
        "images in evaluation and prediction. The probabilities of overlapping windows "
        "of image_size are averaged. None: no windows, images of image_size.",
        reset_in_evaluation=True,
        unusual="the task does not predict a class for each pixel",
    )
    crop_pct: float | None = field(
        None,
        help="Side of the central crop as a fraction of the shorter side of the "
        "resized image; no effect on random crops in training. None: from the "
        "pretrained weights, else 0.875.",
        from_weights="resizing",
        any_source=True,
    )
    crop_mode: CropMode | None = field(
        None,
        help="Fit of images that are not square: central crop (center), stretch "
        "(squash), or pad with grey (border); None: from the pretrained weights, else "
        "center.",
        from_weights="resizing",
        any_source=True,
    )
    interpolation: Interpolation | None = field(
        None,
        help="Interpolation of resized images: bilinear or bicubic, both antialiased; "
        "None: from the pretrained weights, else bilinear.",
        from_weights="resizing",
        any_source=True,
    )
    channels: int | None = field(
        None,
        help="Number of image channels: 1 (grey) or 3 (colour); None: as stored.",
    )
    white_level: int | None = field(
        None,
        help="White level of images with 16 bits per channel, such as 4095 for 12-bit "
        "data; None: 65535.",
        any_source=True,
    )
    max_pixels: int = field(
        2**26,
        help="Maximum number of pixels of an image file. Larger images count as "
        "unreadable, as they could exhaust the memory.",
        free_in_evaluation=True,
        any_source=True,
    )
    max_bad_fraction: float = field(
        0.02,
        help="Maximum fraction of a split's images, rounded up, that may be "
        "unreadable: training replaces unreadable images by others of the same class, "
        "evaluation skips them. In a coco: file also the maximum fraction of images, "
        "and of boxes, that may be skipped as damaged.",
        free_in_evaluation=True,
        any_source=True,
    )
    mean: tuple[float, ...] | None = field(
        None,
        help="Mean of each channel for normalization, in 0..1; None: from the "
        "pretrained weights, else computed from the training split.",
        from_weights="statistics",
    )
    std: tuple[float, ...] | None = field(
        None,
        help="Standard deviation of each channel for normalization, in 0..1; None: as "
        "for mean.",
        from_weights="statistics",
    )
    sound: SoundConfig = field(
        default_factory=SoundConfig,
        help="Options of clips and spectrograms, for a source audio:DIR_OR_FILE.csv.",
    )
    augment: AugmentConfig = field(
        default_factory=AugmentConfig,
        help="Augmentation of the training images, different in every epoch.",
        reset_in_evaluation=True,
    )
    cache: Literal["auto", "device", "stream"] = field(
        "auto",
        help="Storage of the images: in device memory (device), streamed from the host "
        "(stream), or chosen by their size (auto).",
        may_change_on_resume=True,
    )
    workers: int | None = field(
        default=None,
        help="Processes that decode streamed images; 0: threads of this process; "
        "None: 0 unless there are many files and more than four cores.",
        shared="never",
        may_change_on_resume=True,
        other_names="workers num_workers",
        free_in_evaluation=True,
    )

    options: Options = field(
        default_factory=dict,
        help="Keyword arguments of a custom source's function, by name.",
        of_source=True,
        free_in_evaluation=True,
    )

    def validate(self) -> None:
        super().validate()
        self._positive("batch_size", "eval_batch_size", "image_size", "max_pixels")
        self._positive("repeats", "train_image_size")
        white = self.white_level
        self._check("white_level", white is None or 0 < white < 2**16, "1 to 65535")
        self._check_training_sizes()
        self._check_sliding()
        self._fraction("max_bad_fraction")
        self._check("channels", self.channels in (None, 1, 3), "1 or 3")
        self._not_negative("workers")
        if (self.mean is None) != (self.std is None):
            report(
                "data.mean and data.std: one of the two is missing; give both or "
                "neither",
                "data.mean",
                "data.std",
            )
        in_0_1 = "in 0..1: statistics of pixel values from 0 to 255, divided by 255"
        self._check("mean", all(0 <= m <= 1 for m in self.mean or ()), in_0_1)
        std = all(0 < s <= 1 for s in self.std or ())
        self._check("std", std, f"values above 0, {in_0_1}")
        self._share("crop_pct")
        check(self, COMBINATIONS, "data")

    @property
    def fit(self) -> tuple[float, Interpolation, CropMode]:
        """The values, or defaults, of `crop_pct`, `interpolation` and `crop_mode`."""
        return (
            self.crop_pct or CROP_PCT,
            self.interpolation or INTERPOLATION,
            self.crop_mode or CROP_MODE,
        )

    @property
    def training_sizes(self) -> tuple[int, ...]:
        """Training image sizes in the course of a run; () means `image_size`."""
        one = () if self.train_image_size is None else (self.train_image_size,)
        return self.progressive_sizes or one

    @property
    def seen_size(self) -> int | None:
        """Height and width of evaluation images; None keeps the stored size."""
        return self.sliding_size or self.image_size

    def _check_sliding(self) -> None:
        whole, size = self.sliding_size, self.image_size
        if whole is not None and size is not None and whole <= size:
            report(
                f"data.sliding_size = {whole}: expected more than data.image_size = "
                f"{size}, the size of a window; leave data.sliding_size out, or "
                "increase it",
                "data.sliding_size",
            )

    def _check_training_sizes(self) -> None:
        smaller, size = self.train_image_size, self.image_size
        if smaller is not None and (size is None or smaller >= size):
            report(
                f"data.train_image_size = {smaller}: expected less than "
                f"data.image_size = {size}, the size in evaluations; leave "
                "data.train_image_size out, or increase data.image_size",
                "data.train_image_size",
            )
        sizes, last = self.progressive_sizes, smaller or size
        rising = list(sizes) == sorted(set(sizes)) and all(size > 0 for size in sizes)
        self._check("progressive_sizes", rising and len(sizes) != 1, "increasing sizes")
        if sizes and sizes[-1] != last:
            field = "train_image_size" if smaller else "image_size"
            report(
                f"data.progressive_sizes = {sizes}: expected data.{field} = {last} as "
                f"the last size; append {last}, or change data.{field}",
                "data.progressive_sizes",
            )


COMBINATIONS = (
    *data_combinations.COMBINATIONS,
    *data_combinations.need_forms(with_metadata(DataConfig, "forms")),
)
