"""The section `data.augment`: random changes of the training images."""

from dataclasses import dataclass
from typing import Any

from jaxtrain.config.base import Section
from jaxtrain.errors import UserError

# What has an effect only where another field turns it on: field -> that field.
DETAILS = {
    "crop_scale": "random_resized_crop",
    "crop_ratio": "random_resized_crop",
}


@dataclass(frozen=True, kw_only=True)
class AugmentConfig(Section):
    """Random changes of the training images, other ones in every epoch."""

    # Pad by this many pixels on every side, then crop back at a random place.
    crop_padding: int = 0
    # Mirror left and right with probability one half.
    horizontal_flip: bool = False
    # Side in pixels of a square, at a random place, set to the mean colour; 0: none.
    cutout_size: int = 0
    # A random window of the stored image, resized to image_size.
    random_resized_crop: bool = False
    # Smallest and largest part of the area that such a window has.
    crop_scale: tuple[float, ...] = (0.08, 1.0)
    # Smallest and largest aspect, width / height, that it has.
    crop_ratio: tuple[float, ...] = (3 / 4, 4 / 3)

    # Augmentations of your own, after the others: path/to/file.py:name or
    # package.module:name.
    own: tuple[str, ...] = ()

    def validate(self) -> None:
        self._not_negative("crop_padding", "cutout_size")
        self._range("crop_scale", most=1)
        self._range("crop_ratio")
        for detail, of in DETAILS.items():
            value, default = getattr(self, detail), _default(detail)
            if value != default and not getattr(self, of):
                raise UserError(
                    f"augment.{detail} = {value!r} has no effect without data.augment."
                    f"{of}: set that too"
                )

    def _range(self, name: str, most: float | None = None) -> None:
        """Check that a field holds two values above 0, the smaller one first."""
        value = getattr(self, name)
        ok = len(value) == 2 and 0 < value[0] <= value[1]
        limit = "" if most is None else f", at most {most}"
        ok = ok and (most is None or value[1] <= most)
        self._check(name, ok, f"two values above 0{limit}, the smaller one first")


def _default(field: str) -> Any:
    return AugmentConfig.__dataclass_fields__[field].default
