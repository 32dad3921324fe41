"""Images with segmentation masks (see `target_transform.py`).

Masks are decoded when they are resized. If a mask differs in size from its image, or
has a value that is not a class, the example is unreadable.
"""

import contextlib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from jaxtrain.config import DataConfig
from jaxtrain.data import ahead, files
from jaxtrain.data.files import StoredFile, UnreadableError
from jaxtrain.data.pixel_classes import IGNORED, PIXEL_CLASSES
from jaxtrain.data.slices import NamedSplits, check_train, join
from jaxtrain.data.stores import Images, Opened, Remark, Store
from jaxtrain.data.target_transform import ResizedCrop
from jaxtrain.errors import UserError
from jaxtrain.plugins.segmentation import upright
from jaxtrain.plugins.segmentation.pixel_classes import FILES, PixelClasses, StoredMask

# Number of masks that are checked when a data set is opened.
NUM_LOOKED = 8
# Number of masks that `count_pixels` reads at a time in each thread.
BLOCK = 64


class Masks(Protocol):
    """Protocol of mask stores; indices are example indices."""

    def read(self, indices: np.ndarray) -> list[StoredMask]: ...


@dataclass(frozen=True)
class MaskedStore:
    """Store of images with masks.

    Attributes:
      images: Store of the images; its targets are unused.
      masks: Masks of the images.
      classes: Classes of the mask values.
      max_pixels: Maximum number of pixels of a mask; larger masks are unreadable.
      drawn_on_stored: Whether masks were drawn on the stored pixels, before applying
        the EXIF orientation.
    """

    images: Any
    masks: Masks
    classes: PixelClasses
    max_pixels: int
    facts: Mapping[str, Any]
    remarks: tuple[Remark, ...] = ()
    drawn_on_stored: bool = False

    @property
    def image_shape(self) -> tuple[int | None, int | None, int]:
        return self.images.image_shape

    @property
    def names(self) -> Any:
        """Names of the image files; None for images in an array."""
        return self.images.names

    def strata(self, indices: np.ndarray) -> np.ndarray:
        return np.zeros(len(indices), np.int32)

    def read(self, indices: np.ndarray) -> tuple[Images, list[StoredMask]]:
        return self.images.read(indices)[0], self.masks.read(indices)

    def count_pixels(self, indices: np.ndarray) -> np.ndarray:
        """Histogram of the pixel values in the masks of examples, int64 (256,).

        Unreadable masks are skipped; they are reported when their examples are read.
        """

        def count(start: int) -> np.ndarray:
            total = np.zeros(IGNORED + 1, np.int64)
            for mask in self.masks.read(indices[start : start + BLOCK]):
                with contextlib.suppress(UnreadableError):
                    numbers = self.classes.numbers(mask, self.max_pixels)
                    total += np.bincount(numbers.ravel(), minlength=IGNORED + 1)
            return total

        starts = range(0, len(indices), BLOCK)
        return sum(
            ahead.by_threads(count, starts, ahead.READ_THREADS),
            np.zeros(IGNORED + 1, np.int64),
        )

    def has_several_classes(self, indices: np.ndarray) -> bool:
        """Whether two or more classes occur in the masks of examples.

        Masks are read until a second class is found, usually in the first mask.
        """
        found: set[int] = set()
        for start in range(0, len(indices), NUM_LOOKED):
            for mask in self.masks.read(indices[start : start + NUM_LOOKED]):
                with contextlib.suppress(UnreadableError):
                    numbers = self.classes.numbers(mask, self.max_pixels)
                    found.update(np.unique(numbers[numbers != IGNORED]).tolist())
                if len(found) > 1:
                    return True
        return False

    def transform_target(
        self, target: StoredMask | None, crop: ResizedCrop
    ) -> np.ndarray:
        """Resize and crop a mask like its image, uint8 (rows, columns).

        Without a mask, all pixels are `IGNORED`.

        Raises:
          UnreadableError: The mask is invalid, or its size differs from the image's.
        """
        if target is None:
            return np.full(crop.size, IGNORED, np.uint8)
        numbers = self.classes.numbers(target, self.max_pixels)
        turned = self.drawn_on_stored and crop.orientation != 1
        # Decoding has already rotated a mask whose file has an EXIF orientation.
        if turned and files.orientation_of(target, self.max_pixels) == 1:
            numbers = upright.upright_pixels(numbers, crop.orientation)
        if numbers.shape != crop.image_size:
            (height, width), (rows, columns) = numbers.shape, crop.image_size
            name = "" if isinstance(target, np.ndarray) else f" {target.name}"
            hint = upright.exif_hint(crop.image_size, (height, width), crop.orientation)
            raise UnreadableError(
                f"the mask{name} has {width}x{height} pixels, but the image has "
                f"{columns}x{rows}{hint}"
            )
        return crop.pixels(numbers, IGNORED)


def make_masked(
    config: DataConfig,
    images: Store,
    masks: Masks,
    splits: NamedSplits,
    classes: PixelClasses | None,
    digest: str,
    *,
    remarks: tuple[Remark, ...] = (),
    facts: Mapping[str, Any] | None = None,
) -> Opened:
    """Combine images and masks into a data set.

    Args:
      config: Data section of the config.
      images: Store of the images.
      masks: Store of the masks.
      splits: Example indices of each split.
      classes: Classes of the mask values; None raises UserError.
      digest: SHA-256 of the contents of the data set.
      remarks: Remarks for the user from reading the data set.
      facts: Additional metadata of the data set.

    Raises:
      UserError: There are no training examples or no class list, or the masks do not
        match the list.
    """
    source = config.source
    check_train(source, splits)
    if classes is None:
        raise UserError(
            f"{source}: the class list of the masks is missing: write {FILES[0]} into "
            "the directory, or set data.classes to a file with one class per line in "
            "index order: name, or name,R,G,B for masks with colours"
        )
    known = [digest, *classes.names, repr(classes.colours)]
    whole = hashlib.sha256("\0".join(known).encode(errors="replace"))
    metadata = {PIXEL_CLASSES: classes.names, "digest": whole.hexdigest()}
    examples = join([part for some in splits.values() for part in some])
    remarks += upright.remarks_on(config, images, examples, "masks")
    store = MaskedStore(
        images,
        masks,
        classes,
        config.max_pixels,
        {**(facts or {}), **metadata},
        (*classes.remarks, *remarks),
        config.boxes_drawn_on == upright.STORED,
    )
    _check_some(source, store, examples)
    return store, splits


def _check_some(source: str, store: MaskedStore, examples: np.ndarray) -> None:
    """Check a few masks; raise UserError if all are invalid, or hold only 0 and 255.

    Masks of 0 and 255 probably have a white foreground, which the loss would ignore. If
    only some masks are invalid, they are reported when they are read.
    """
    num = min(NUM_LOOKED, len(examples))
    some = examples[np.arange(num) * len(examples) // max(num, 1)]
    values: set[int] = set()
    unfit: list[str] = []
    for image, mask in zip(*store.read(some), strict=True):
        try:
            height, width, turned = _size_of(image, store.max_pixels)
            size = height, width
            crop = ResizedCrop(size, (0, 0, width, height), size, turned)
            values.update(np.unique(store.transform_target(mask, crop)).tolist())
        except UnreadableError as error:
            unfit.append(str(error))
    if num and len(unfit) == num:
        raise UserError(
            f"{source}: none of {num} checked examples can be used ({unfit[0]}): give "
            "each image a mask of the same size, with the values listed in "
            f"{store.classes.where}"
        )
    if values == {0, IGNORED} and store.classes.colours is None:
        raise UserError(
            f"{source}: the checked masks have only the values 0 and {IGNORED}, the "
            f"label of ignored pixels: if {IGNORED} is a class, list the classes with "
            f"colours in {store.classes.where}, such as background,0,0,0 and "
            "thing,255,255,255"
        )


def _size_of(image: np.ndarray | StoredFile, max_pixels: int) -> tuple[int, int, int]:
    """Height and width of an upright image in pixels, and its EXIF orientation.

    Raises:
      UnreadableError: The file is not an image.
    """
    if isinstance(image, np.ndarray):
        return image.shape[0], image.shape[1], 1
    file = files.open_file(image.data, max_pixels)
    return file.height, file.width, file.orientation
