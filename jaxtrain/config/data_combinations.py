"""Options of the section `data` that exclude or require each other."""

from collections.abc import Mapping
from typing import Final

from jaxtrain.config.augment import AugmentConfig
from jaxtrain.config.combinations import (
    Feature,
    Incompatible,
    Needs,
    choice,
    option,
)
from jaxtrain.config.metadata import with_metadata
from jaxtrain.config.sound import SoundConfig

# Preprocessing defaults if neither the config nor the pretrained weights set a value.
CROP_PCT: Final = 0.875
INTERPOLATION: Final = "bilinear"
CROP_MODE: Final = "center"
RESIZED = option("data", "image_size")


def _source(*forms: str) -> Feature:
    kinds = tuple(form.partition(":")[0] + ":" for form in forms)
    when = f"= {' or '.join(forms)}"
    return Feature("data", ("source",), when, lambda source: source.startswith(kinds))


def _other(name: str, usual: float | str) -> Feature:
    """Return the feature of a field whose value is neither `usual` nor None."""
    when = f"other than {usual}"
    return Feature("data", (name,), when, lambda value: value not in (None, usual))


def need_forms(fields: Mapping[str, str]) -> tuple[Needs, ...]:
    """Return a rule for each field that has an effect only with certain sources.

    Args:
      fields: Map from field names to forms of `data.source`, separated by spaces.
    """
    return tuple(
        Needs(option("data", name), _source(*forms.split()), "leave the option out")
        for name, forms in fields.items()
    )


AUDIO = _source("audio:DIR_OR_FILE.csv")
ON_DEVICE = choice("data", "cache", "device")
COMBINATIONS = (
    Incompatible(
        ON_DEVICE,
        Feature("data", ("workers",), "above 0", bool),
        "workers decode streamed images only",
        "set data.workers to 0 or data.cache to stream",
    ),
    Incompatible(
        option("data", "classes"),
        option("data", "targets", "label_separator"),
        "a data set has either masks or other targets",
        "leave one of the two options out",
    ),
    Incompatible(
        option("data", "targets"),
        option("data", "label_separator"),
        "labels are either in several columns or a list in one column",
        "leave one of the two options out",
    ),
    Needs(option("data.sound", *vars(SoundConfig())), AUDIO, "leave the option out"),
    Needs(
        option("data.augment", "time_masks", "frequency_masks"),
        AUDIO,
        "leave the option out",
    ),
    Incompatible(
        AUDIO,
        option("data", "image_size", "channels"),
        "data.sound sets the size of the spectrograms, which have one channel",
        "leave data.image_size and data.channels out",
    ),
    Incompatible(
        AUDIO,
        option("data.augment", *with_metadata(AugmentConfig, "of_pictures")),
        "the augmentation is for photographs and does not suit spectrograms",
        "leave the augmentation out",
    ),
    Incompatible(
        ON_DEVICE,
        option("data.sound", "random_crop"),
        "clips are cropped before they are stored on the device",
        "set data.cache to stream",
    ),
    Needs(option("data", "sliding_size"), RESIZED),
    Needs(option("data.augment", "random_resized_crop"), RESIZED),
    Needs(option("data.augment", "scale_jitter"), RESIZED),
    Incompatible(
        ON_DEVICE,
        option("data.augment", "scale_jitter"),
        "the host crops windows from full images, which are not stored on the device",
        "set data.cache to stream",
    ),
    Needs(
        option("data", "sliding_size"),
        option("data.augment", "random_resized_crop", "scale_jitter"),
        "set one of them: training then uses windows, as evaluation does",
    ),
    Needs(_other("crop_pct", CROP_PCT), RESIZED),
    Needs(_other("interpolation", INTERPOLATION), RESIZED),
    Needs(_other("crop_mode", CROP_MODE), RESIZED),
    Incompatible(
        _other("crop_mode", CROP_MODE),
        _other("crop_pct", CROP_PCT),
        "this data.crop_mode does not crop the image",
        "leave one of the two options out",
    ),
)
