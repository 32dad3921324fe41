"""Images with masks, the classes of their pixels (see `target_transform.py`).

Masks are decoded when they are placed. One that does not fit its image, or holds a
value that is no class, makes the example unreadable.
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
from jaxtrain.data.target_transform import Placed
from jaxtrain.errors import UserError
from jaxtrain.plugins.segmentation import upright
from jaxtrain.plugins.segmentation.pixel_classes import FILES, PixelClasses, StoredMask

# Masks that are looked at before the first is asked for.
NUM_LOOKED = 8
# Masks that a thread counts the pixels of at once.
BLOCK = 64


class Masks(Protocol):
    """The masks of a set, by the numbers of its examples."""

    def read(self, indices: np.ndarray) -> list[StoredMask]: ...


@dataclass(frozen=True)
class MaskedStore:
    """Images of a store, and their masks.

    Attributes:
      images: Store of the images; its targets are not asked for.
      masks: Masks of its examples.
      classes: What the masks hold.
      max_pixels: A larger mask is refused.
      drawn_on_stored: Whether masks were drawn on the stored pixels, before EXIF turns
        the image upright.
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
        """Names of the image files; a store of arrays has none."""
        return self.images.names

    def strata(self, indices: np.ndarray) -> np.ndarray:
        return np.zeros(len(indices), np.int32)

    def read(self, indices: np.ndarray) -> tuple[Images, list[StoredMask]]:
        return self.images.read(indices)[0], self.masks.read(indices)

    def count_pixels(self, indices: np.ndarray) -> np.ndarray:
        """Count the pixels of each value in the masks of examples, int64 (256,).

        Those that cannot be read, which are told when the examples are, have none.
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
        """Whether the masks of examples have pixels of two classes or more.

        It looks until it has met a second one, which most often is in the first mask.
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

    def place(self, target: StoredMask | None, placed: Placed) -> np.ndarray:
        """Return where the mask of an image is in its result, uint8 (rows, columns).

        Raises:
          UnreadableError: the mask does not fit the image, or is none.
        """
        if target is None:
            return np.full(placed.size, IGNORED, np.uint8)
        numbers = self.classes.numbers(target, self.max_pixels)
        turned = self.drawn_on_stored and placed.orientation != 1
        # A mask with EXIF data of its own is upright already.
        if turned and files.orientation_of(target, self.max_pixels) == 1:
            numbers = upright.upright_pixels(numbers, placed.orientation)
        if numbers.shape != placed.image_size:
            (height, width), (rows, columns) = numbers.shape, placed.image_size
            name = "" if isinstance(target, np.ndarray) else f" {target.name}"
            hint = upright.exif_hint(
                placed.image_size, (height, width), placed.orientation
            )
            raise UnreadableError(
                f"its mask{name} has {width}x{height} pixels, and the image "
                f"{columns}x{rows}{hint}"
            )
        return placed.pixels(numbers, IGNORED)


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
    """Return a set of images with masks.

    Args:
      config: Config of the data.
      images: Store of the images.
      masks: Masks of its examples.
      splits: Numbers of the examples of each split.
      classes: What the masks hold. None means that nothing says so.
      digest: SHA-256 of what the set holds.
      remarks: What a user should know of how it was found.
      facts: What else is known of the set.

    Raises:
      UserError: there is nothing to train on, or no list of the classes, or the masks
        hold something else than it says.
    """
    source = config.source
    check_train(source, splits)
    if classes is None:
        raise UserError(
            f"{source}: nothing tells which classes its masks have: write their names "
            f"into {FILES[0]}, a line each, in the order of their numbers, or "
            f"name,R,G,B where masks have colours, beside the images or where "
            "data.classes says"
        )
    known = [digest, *classes.names, repr(classes.colours)]
    whole = hashlib.sha256("\0".join(known).encode(errors="replace"))
    told = {PIXEL_CLASSES: classes.names, "digest": whole.hexdigest()}
    examples = join([part for some in splits.values() for part in some])
    remarks += upright.remarks_on(config, images, examples, "masks")
    store = MaskedStore(
        images,
        masks,
        classes,
        config.max_pixels,
        {**(facts or {}), **told},
        (*classes.remarks, *remarks),
        config.boxes_drawn_on == upright.STORED,
    )
    _check_some(source, store, examples)
    return store, splits


def _check_some(source: str, store: MaskedStore, examples: np.ndarray) -> None:
    """Refuse masks of which none fits, or that are white where something is.

    White would not count. What single masks say otherwise is told when they are read.
    """
    num = min(NUM_LOOKED, len(examples))
    some = examples[np.arange(num) * len(examples) // max(num, 1)]
    values: set[int] = set()
    unfit: list[str] = []
    for image, mask in zip(*store.read(some), strict=True):
        try:
            height, width, turned = _size_of(image, store.max_pixels)
            size = height, width
            placed = Placed(size, (0, 0, width, height), size, turned)
            values.update(np.unique(store.place(mask, placed)).tolist())
        except UnreadableError as error:
            unfit.append(str(error))
    if num and len(unfit) == num:
        raise UserError(
            f"{source}: of {num} examples looked at none can be used; {unfit[0]}: give "
            "each image a mask of its own size, with the values that "
            f"{store.classes.where} says"
        )
    if values == {0, IGNORED} and store.classes.colours is None:
        raise UserError(
            f"{source}: the masks looked at hold 0 and {IGNORED}, and {IGNORED} is for "
            "pixels that do not count: if it is the second class, give the classes "
            f"with colours, such as background,0,0,0 and thing,255,255,255, in place "
            f"of {store.classes.where}"
        )


def _size_of(image: np.ndarray | StoredFile, max_pixels: int) -> tuple[int, int, int]:
    """Return the height and width of an image, upright, and its EXIF orientation.

    Raises:
      UnreadableError: it is no image.
    """
    if isinstance(image, np.ndarray):
        return image.shape[0], image.shape[1], 1
    file = files.open_file(image.data, max_pixels)
    return file.height, file.width, file.orientation
