"""Remarks on information lost when images are converted to 8 bits and resized."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from jaxtrain.config import DataConfig
from jaxtrain.data import depth, files, formats
from jaxtrain.data.files import StoredFile, UnreadableError
from jaxtrain.data.image_source import Source
from jaxtrain.data.input_kind import input_of
from jaxtrain.data.sampled import evenly, stored_images
from jaxtrain.data.stores import Remark, Store
from jaxtrain.errors import UserError

# Maximum number of images to inspect.
NUM_LOOKED = 64
# A remark is made if centre crops discard more than this fraction of the image area. If
# the aspect ratio is 3:2, as in photos, the crop discards 1/3.
MUCH = 0.4


class Converted(NamedTuple):
    """Properties of a sample of stored images.

    Attributes:
      sizes: Height and width of each image, (n, 2).
      largest: Largest value of the 16-bit images, or None if there are none.
      num_deep: Number of 16-bit images.
      bands: Total number of bands of each image that has unused bands.
      unused: Number of unused bands of the same images.
    """

    sizes: np.ndarray
    largest: int | None
    num_deep: int
    bands: list[int]
    unused: list[int]

    @property
    def white_level(self) -> int | None:
        """Suggested `data.white_level`, or None.

        The result is None if no image has 16 bits, or if a value exceeds 14 bits.
        """
        return None if self.largest is None else depth.fitting_level(self.largest)


def inspect_sample(store: Store, examples: np.ndarray, max_pixels: int) -> Converted:
    """Inspect at most `NUM_LOOKED` evenly spaced images of a store.

    Args:
      store: Store of the images.
      examples: Indices of the examples to sample from, (N,).
      max_pixels: Maximum number of pixels; larger images are skipped.
    """
    sizes, deep, bands = [], list[int](), list[tuple[int, int]]()
    are_images = input_of(store.facts).are_images
    examples = evenly(examples, NUM_LOOKED if are_images else 0)
    for _, image in stored_images(store, examples):
        if not isinstance(image, StoredFile):
            sizes.append(image.shape[:2])
            continue
        try:
            file = files.open_file(image.data, max_pixels)
            sizes.append((file.height, file.width))
            if file.format in ("PNG", "TIFF"):
                known = formats.candidates(file.data)
                stored = depth.values(file.data, known)
                deep += [] if stored is None else [int(stored.max())]
                num, unused = depth.bands_beyond(file.data, known)
                bands += [(num, unused)] if unused else []
        except UnreadableError:
            continue
        except Exception:  # Training reports damaged files.
            continue
    return Converted(
        sizes=np.array(sizes).reshape(-1, 2),
        largest=max(deep, default=None),
        num_deep=len(deep),
        bands=[num for num, _ in bands],
        unused=[unused for _, unused in bands],
    )


def remarks(sample: Converted, config: DataConfig) -> tuple[Remark, ...]:
    """Return remarks on lost image information, and on options that retain it.

    Raises:
      UserError: `data.white_level` is set, but the inspected images have 8 bits.
    """
    return (
        *_depth_remarks(sample, config),
        *_band_remarks(sample),
        *_crop_remarks(sample, config),
    )


def conversion_remarks(train: Source, config: DataConfig) -> tuple[Remark, ...]:
    """Return the `remarks` on a sample of the training split."""
    return remarks(
        inspect_sample(train.store, train.indices, config.max_pixels), config
    )


def cut_away(sizes: np.ndarray) -> float:
    """Return the mean fraction of image area outside the largest centred square.

    Args:
      sizes: Height and width of each image, (n, 2).
    """
    return float(np.mean(1 - sizes.min(axis=1) / sizes.max(axis=1)))


def _depth_remarks(sample: Converted, config: DataConfig) -> Iterator[Remark]:
    num, white = len(sample.sizes), config.white_level
    if white is not None and sample.largest is None and num:
        raise UserError(
            f"data.white_level = {white} has no effect: none of the {num} inspected "
            "images has 16 bits per channel; leave data.white_level out"
        )
    if sample.largest is None:
        return
    counts = (
        f"{sample.num_deep} of {num} inspected images have 16 bits and values up to "
    )
    counts += f"{sample.largest:,}"
    fitting = sample.white_level
    if white is not None and sample.largest > white:
        text = f"{counts}: values above data.white_level = {white:,} become white"
        yield Remark("grey levels", text, serious=True)
    elif white is None and fitting is not None:
        levels = sample.largest // 256 + 1
        text = (
            f"{counts}; conversion to 8 bits keeps only {levels} grey levels: set "
            "data.white_level = "
        )
        yield Remark("grey levels", f"{text}{fitting}", serious=True)


def _band_remarks(sample: Converted) -> Iterator[Remark]:
    if sample.bands:
        text = (
            f"{len(sample.bands)} of {len(sample.sizes)} inspected images have "
            f"{max(sample.bands)} bands, of which the last {max(sample.unused)} are "
            "not used: save arrays (arrays:FILE.npz) to train on all bands"
        )
        yield Remark("bands", text, serious=True)


def _crop_remarks(sample: Converted, config: DataConfig) -> Iterator[Remark]:
    if config.seen_size is None or config.fit[2] != "center" or not len(sample.sizes):
        return
    part = cut_away(sample.sizes)
    if part > MUCH:
        height, width = np.median(sample.sizes, axis=0).astype(int).tolist()
        text = (
            f"{part:.0%} of the area of the images ({width}x{height} pixels in the "
            "median) lies outside the central square crop: set data.crop_mode = border "
            "to use the full images"
        )
        yield Remark("cut away", text, serious=True)
