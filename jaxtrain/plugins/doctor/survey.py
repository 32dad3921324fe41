"""Survey of a data set for `main.py new`: example counts, image sizes, targets."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxtrain import tasks
from jaxtrain.config import DataConfig
from jaxtrain.data import conversions, files
from jaxtrain.data.columns import NAMES
from jaxtrain.data.files import StoredFile, UnreadableError
from jaxtrain.data.input_kind import InputKind, input_of
from jaxtrain.data.opening import open_store
from jaxtrain.data.pixel_classes import PIXEL_CLASSES
from jaxtrain.data.sampled import NUM_HEADERS, evenly, stored_images
from jaxtrain.data.stores import Remark, remarks_of
from jaxtrain.errors import UserError

# Approximate number of images to decode; only the headers of other images are read.
NUM_DECODED = 50


@dataclass(frozen=True)
class Survey:
    """Properties of a data set, measured in part on a sample of its training images.

    Attributes:
      counts: Number of examples in each split.
      class_counts: Number of training examples per class or label, (K,), without zeros.
      facts: Metadata of the data set, `Store.facts`.
      groups: Class indices of the training examples, (N,), or multi-hot labels, bool
        (N, labels); see `Store.strata`.
      sizes: Height and width of the sampled images, (n, 2); for sounds, sample rate
        in Hz and number of samples.
      colour: Whether any decoded image is not grey.
      num_unreadable: Number of sampled images that are unreadable.
      remarks: Remarks on the store and on the conversion of its images.
      white_level: 16-bit value to map to 255; None for 65535, or for 8-bit images.
    """

    counts: Mapping[str, int]
    class_counts: np.ndarray
    sizes: np.ndarray
    colour: bool
    num_unreadable: int
    facts: Mapping[str, Any]
    groups: np.ndarray
    remarks: tuple[Remark, ...] = ()
    white_level: int | None = None

    @property
    def hears(self) -> bool:
        """Whether the examples are sounds."""
        return "sound" in vars(input_of(self.facts))

    @property
    def noun(self) -> str:
        """Word for an example in messages: image or sound."""
        return input_of(self.facts).noun

    @property
    def seconds(self) -> np.ndarray:
        """Lengths of the sampled sounds in seconds, (n,)."""
        return self.sizes[:, 1] / self.sizes[:, 0]

    @property
    def numbers(self) -> tuple[str, ...]:
        """Column names of numeric targets; empty for other targets."""
        return self.facts.get(NAMES, ()) if self.groups.ndim == 1 else ()

    @property
    def pixel_classes(self) -> tuple[str, ...]:
        """Pixel class names of mask targets; empty for other targets."""
        return self.facts.get(PIXEL_CLASSES, ())

    @property
    def groups_are(self) -> str:
        """Word for the groups in messages: labels or classes."""
        return "labels" if self.groups.ndim > 1 else "classes"

    @property
    def num_groups(self) -> int:
        """Number of classes or labels."""
        labels = self.groups.ndim > 1
        return self.groups.shape[1] if labels else self.facts["num_classes"]


def survey(config: DataConfig) -> Survey:
    """Survey the training split of a data source; images are sampled.

    Raises:
      UserError: The source cannot be opened, `main.py new` does not support it, no
        training image is readable, or no training example is labelled.
    """
    store, splits = open_store(config)
    kind = input_of(store.facts)
    if store.image_shape[-1] not in (1, 3):
        raise UserError(
            f"{config.source} has images of {store.image_shape[-1]} channels, but "
            "`new` supports only 1 and 3: write the recipe by hand (docs/data.md)"
        )
    if "train" not in splits:
        raise UserError(
            f"{config.source} has the splits {', '.join(splits)}, but no split "
            "`train`: rename a split to train"
        )
    train = np.concatenate(splits["train"])
    some = evenly(train, NUM_HEADERS)
    number = len(some)
    sizes, num_colour, num_unreadable = [], 0, 0
    decoded = set(some[:: max(1, number // NUM_DECODED)].tolist())
    for index, image in stored_images(store, some):
        try:
            if not kind.are_images:
                size, colour = _listen(image, kind), False
            else:
                size, colour = _look(image, config.max_pixels, index in decoded)
        except UnreadableError:
            num_unreadable += 1
            continue
        sizes.append(size)
        num_colour += colour
    if not sizes:
        raise UserError(
            f"{config.source}: none of {number} {kind.noun}s can be read: repair the "
            "files"
        )
    groups = store.strata(train)
    if groups.ndim > 1:
        class_counts = groups.sum(axis=0)
        class_counts = class_counts[class_counts > 0]
        if not len(class_counts):
            raise UserError(
                f"{config.source}: no training {kind.noun} has any of the "
                f"{groups.shape[1]} labels: add {kind.noun}s with labels, or choose "
                "other columns (--targets)"
            )
    else:
        known = groups[groups >= 0] if (groups >= 0).any() else groups
        _, class_counts = np.unique(known, return_counts=True)
    seen = conversions.inspect_sample(store, train, config.max_pixels)
    # The recipe will set `data.white_level`, so the remarks assume that it is set.
    levelled = dataclasses.replace(config, white_level=seen.white_level)
    return Survey(
        counts={name: sum(map(len, shards)) for name, shards in splits.items()},
        class_counts=class_counts,
        sizes=np.array(sizes),
        colour=num_colour > 0,
        num_unreadable=num_unreadable,
        facts=store.facts,
        groups=groups,
        remarks=(*remarks_of(store), *conversions.remarks(seen, levelled)),
        white_level=seen.white_level,
    )


def _listen(stored: np.ndarray | StoredFile, kind: InputKind) -> tuple[int, int]:
    """Return the sample rate in Hz and the number of samples from a sound's header."""
    assert isinstance(stored, StoredFile)
    return kind.size_of(stored.data)


def _look(
    image: np.ndarray | StoredFile, max_pixels: int, decode: bool
) -> tuple[tuple[int, int], bool]:
    """Return (height, width) of an image, and whether any pixel is coloured.

    An RGB image may have only grey pixels, so its channels are compared. If `decode`
    is False, only the header of an image file is read, and the image counts as grey.
    """
    if isinstance(image, StoredFile):
        file = files.open_file(image.data, max_pixels)
        pixels = file.decode(3) if decode else np.zeros((1, 1, 3), np.uint8)
        size = file.height, file.width
    else:
        pixels, size = image, image.shape[:2]
    return size, bool((pixels != pixels[..., :1]).any())


def suitable_task(found: Survey, data: DataConfig) -> str:
    """Return the name of the task for the targets of a data set.

    Raises:
      UserError: No task supports the targets.
    """
    task = tasks.suitable(found.facts, found.groups)
    if task is None:
        raise UserError(
            f"{data.source} has targets that are neither classes nor columns: write "
            "a recipe with a custom task (docs/tasks.md)"
        )
    return task
