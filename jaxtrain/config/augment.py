"""The section `data.augment`: augmentation of the training images."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

from jaxtrain.config.base import Section
from jaxtrain.config.combinations import Incompatible, Needs, check, option
from jaxtrain.config.metadata import field, with_metadata

PATH = "data.augment"
# Number of images in a mosaic.
MOSAIC_IMAGES = 4
# Numbers of channels that a colour augmentation may support. Changes of saturation and
# hue require `COLOUR`, as grey images have neither.
GREY_OR_COLOUR, COLOUR = (1, 3), (3,)
_option = partial(option, PATH)


@dataclass(frozen=True, kw_only=True)
class AugmentConfig(Section):
    """Augmentation of the training images, different in every epoch."""

    crop_padding: int = field(
        0,
        help="Random crop: padding in pixels on every side before the crop; 0: none.",
    )
    horizontal_flip: bool = field(
        False,
        help="Flip horizontally with probability 0.5.",
        common=True,
        other_names="hflip",
    )
    cutout_size: int = field(
        0,
        help="Cutout: side in pixels of the square that is set to the mean colour, at "
        "a random position; 0: none.",
    )
    random_resized_crop: bool = field(
        False,
        help="Crop a random window of the stored image, and resize the window to "
        "image_size.",
    )
    crop_scale: tuple[float, ...] = field(
        (0.08, 1.0),
        help="Smallest and largest area of the window of random_resized_crop, as a "
        "fraction of the image's area.",
    )
    scale_jitter: tuple[float, ...] = field(
        (),
        help="Scale jitter (Ghiasi et al. 2021) for segmentation and detection: "
        "smallest and largest scale factor of the image, relative to data.sliding_size "
        "or image_size; the scaled image is then cropped or padded to image_size; (): "
        "none.",
    )

    alternating_flip: bool = field(
        False,
        help="Alternating flip: flip half of the examples horizontally, and the other "
        "half in the next epoch.",
    )
    vertical_flip: bool = field(
        False,
        help="Flip vertically with probability 0.5.",
    )
    rotation: float = field(
        0.0,
        help="Maximum rotation angle in degrees, in either direction.",
    )
    brightness: float = field(
        0.0,
        help="Colour jitter: maximum relative change of the brightness; 0: none.",
        of_pictures=True,
        colour_jitter=True,
    )
    contrast: float = field(
        0.0,
        help="Colour jitter: maximum relative change of the contrast; 0: none.",
        for_channels=GREY_OR_COLOUR,
        of_pictures=True,
        colour_jitter=True,
    )
    saturation: float = field(
        0.0,
        help="Colour jitter: maximum relative change of the saturation; 0: none.",
        for_channels=COLOUR,
        of_pictures=True,
        colour_jitter=True,
    )
    hue: float = field(
        0.0,
        help="Colour jitter: maximum shift of the hue in either direction, as a "
        "fraction of the colour circle, at most 0.5.",
        for_channels=COLOUR,
        of_pictures=True,
        colour_jitter=True,
    )
    jitter_probability: float = field(
        1.0,
        help="Probability of applying the colour jitter: brightness, contrast, "
        "saturation and hue.",
    )
    grayscale: float = field(
        0.0,
        help="Probability of converting the image to greyscale; the number of channels "
        "stays the same.",
        for_channels=COLOUR,
    )
    blur: float = field(
        0.0,
        help="Probability of a Gaussian blur, with a kernel of a tenth of the image's "
        "size.",
    )
    blur_sigma: tuple[float, ...] = field(
        (0.1, 2.0),
        help="Smallest and largest standard deviation of the blur, in pixels.",
    )
    randaugment: int = field(
        0,
        help="RandAugment: number of operations per image; 0: none.",
        for_channels=GREY_OR_COLOUR,
        of_pictures=True,
    )
    randaugment_magnitude: int = field(
        9,
        help="Magnitude of RandAugment, 0 to 30.",
    )
    trivialaugment: bool = field(
        False,
        help="TrivialAugmentWide: one random operation of random magnitude.",
        common=True,
        for_channels=GREY_OR_COLOUR,
        of_pictures=True,
    )
    augmix: int = field(
        0,
        help="AugMix: severity of the operations, 1 to 10; 0: none.",
        for_channels=GREY_OR_COLOUR,
        of_pictures=True,
    )
    erasing: float = field(
        0.0,
        help="Random erasing: probability of filling a rectangle of the image.",
    )
    erasing_value: Literal["mean", "noise"] = field(
        "mean",
        help="Fill of an erased rectangle: the mean colour, or noise.",
    )
    time_masks: int = field(
        0,
        help="SpecAugment for audio: number of time masks, of up to 10 frames each, "
        "filled with the mean.",
    )
    frequency_masks: int = field(
        0,
        help="SpecAugment: number of frequency masks, of up to 8 mel bands each, "
        "filled with the mean.",
    )
    mosaic: float = field(
        0.0,
        help="Mosaic for detection and segmentation: probability that an example "
        "becomes part of a mosaic of four scaled and cropped images (Bochkovskiy et "
        "al. 2020, arXiv:2004.10934); 0: none.",
        of_pictures=True,
    )
    close_mosaic: float = field(
        0.0,
        help="Number of epochs without mosaics at the end of the run.",
    )
    mixup: float = field(
        0.0,
        help="Mixup: alpha of the Beta(alpha, alpha) distribution of the mixing "
        "weights; 0: none.",
        other_names="mixup",
    )
    cutmix: float = field(
        0.0,
        help="CutMix: alpha of the Beta(alpha, alpha) distribution of the area ratio; "
        "0: none. With both mixup and cutmix, each step applies one of "
        "them, each with probability 0.5.",
        other_names="cutmix",
    )

    own: tuple[str, ...] = field(
        (),
        help="Custom augmentations, applied last: path/to/file.py:name or "
        "package.module:name.",
    )

    def validate(self) -> None:
        self._not_negative("crop_padding", "cutout_size")
        self._not_negative("brightness", "contrast", "saturation")
        # Each RandAugment operation makes the compiled step larger.
        self._within(0, 14, "randaugment")
        self._within(0, 180, "rotation")
        self._within(0, 0.5, "hue")
        self._within(0, 30, "randaugment_magnitude")
        self._within(0, 10, "augmix")
        self._within(0, 1, "erasing", "grayscale", "blur")
        self._range("blur_sigma")
        self._not_negative("mixup", "cutmix", "close_mosaic")
        self._within(0, 1, "mosaic")
        self._within(0, 100, "time_masks", "frequency_masks")
        self._share("jitter_probability")
        self._range("crop_scale", most=1)
        if self.scale_jitter:
            self._range("scale_jitter")
        check(self, COMBINATIONS, PATH)

    @property
    def colour_jitter(self) -> bool:
        """Whether brightness, contrast, saturation or hue is jittered."""
        return any(getattr(self, name) for name in COLOUR_JITTER)

    @property
    def cuts_windows(self) -> bool:
        """Whether training crops random windows of images."""
        return self.random_resized_crop or bool(self.scale_jitter)

    @property
    def mixes_pairs(self) -> bool:
        """Whether mixup or CutMix mixes examples in pairs."""
        return bool(self.mixup or self.cutmix)

    @property
    def group(self) -> int:
        """Number of adjacent examples that are mixed together; 1 without mixing."""
        return MOSAIC_IMAGES if self.mosaic else 2 if self.mixes_pairs else 1

    @property
    def mixes(self) -> bool:
        """Whether examples are mixed with other examples of their batch."""
        return self.group > 1

    def _range(self, name: str, most: float | None = None) -> None:
        """Check that a field has two ascending values above 0 and at most `most`."""
        value = getattr(self, name)
        ok = len(value) == 2 and 0 < value[0] <= value[1]
        limit = "" if most is None else f", at most {most}"
        ok = ok and (most is None or value[1] <= most)
        self._check(name, ok, f"two values above 0{limit}, in ascending order")


# Fields that data.augment.jitter_probability applies to.
COLOUR_JITTER = tuple(with_metadata(AugmentConfig, "colour_jitter"))
COMBINATIONS = (
    Incompatible(
        _option("alternating_flip"),
        _option("horizontal_flip"),
        "both flip images horizontally",
        "give only one of the two options",
    ),
    Needs(_option("crop_scale"), _option("random_resized_crop")),
    Incompatible(
        _option("scale_jitter"),
        _option("random_resized_crop"),
        "both crop the training images",
        "give only one of the two options",
    ),
    Needs(
        _option("jitter_probability"),
        _option(*COLOUR_JITTER),
    ),
    Needs(_option("blur_sigma"), _option("blur")),
    Needs(_option("randaugment_magnitude"), _option("randaugment")),
    Needs(_option("erasing_value"), _option("erasing")),
    Needs(_option("close_mosaic"), _option("mosaic")),
)
