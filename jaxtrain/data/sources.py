"""Data sets with a length and random access, read by batch.

A `Store` is a set as it lies on disk or in memory; a `Source` is some of its examples
in the size and channels of the config. To add a kind of data: write its store and a
function that opens its splits (see `stores.py`), and add a row to `SOURCES`.
"""

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from jaxtrain.config import DataConfig
from jaxtrain.data import images
from jaxtrain.data.split import stratified_split
from jaxtrain.data.stores import Opened, Store, open_digits, open_synthetic
from jaxtrain.data.tfds import open_tfds
from jaxtrain.errors import UserError, nearest

# Statistics are taken from all images of a set up to this size.
STATISTICS_BYTES = 2**30
CHUNK_BYTES = 2**24


class Source(Protocol):
    """One split; `image_shape` is (H, W, C) of what `read` returns."""

    @property
    def num_classes(self) -> int: ...
    @property
    def image_shape(self) -> tuple[int, int, int]: ...
    def __len__(self) -> int: ...
    def labels(self) -> np.ndarray:
        """Return all labels, int32 (N,)."""
        ...

    def read(
        self, indices: np.ndarray, crop_seed: tuple[int, ...] | None = None
    ) -> dict[str, np.ndarray]:
        """Return `image`, uint8 (n, H, W, C), and `label`, int32 (n,).

        Args:
          indices: which examples, in which order, (n,).
          crop_seed: numbers, 0 or more; if given, each image is a random window, a
            function of them and of its index alone.
        """
        ...


@dataclass(frozen=True)
class Splits:
    """The three parts of a run's data."""

    train: Source
    validation: Source | None
    test: Source


def load(config: DataConfig, seed: int) -> Splits:
    """Open the splits that the config names, or hold out examples for validation.

    Args:
      config: which data, in which size.
      seed: of the choice of the examples held out.

    Raises:
      UserError: the source, a split or a conversion is not possible.
    """
    kind, _, name = config.source.partition(":")
    if kind not in SOURCES:
        raise UserError(
            f"data.source = {config.source!r}: expected digits, tfds:NAME or "
            f"synthetic:HxWxC/CLASSES[/EXAMPLES]{nearest(kind, SOURCES)}"
        )
    names, open_split = SOURCES[kind](name, config)

    def open_source(split: str) -> ImageSource:
        store, indices = open_split(split)
        shape = images.converted_shape(
            store.image_shape, config.image_size, config.channels
        )
        return ImageSource(store, indices, shape)

    train, test = open_source(config.train_split), open_source(config.test_split)
    in_use = re.findall(r"\w+", f"{config.train_split} {config.test_split}")
    if config.validation_split is not None:
        return Splits(train, open_source(config.validation_split), test)
    if "validation" in names and "validation" not in in_use:
        return Splits(train, open_source("validation"), test)
    if config.validation_fraction == 0:
        return Splits(train, None, test)
    kept, held_out = stratified_split(train.labels(), config.validation_fraction, seed)
    if not len(held_out):
        raise UserError(
            f"data.validation_fraction = {config.validation_fraction} of {len(train)} "
            "examples is none: give a larger fraction, or 0 for no validation"
        )
    return Splits(train.subset(kept), train.subset(held_out), test)


def statistics(
    source: Source, max_examples: int = 10_000
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of each channel, in 0..1.

    Args:
      source: all its images are read if they take up to 1 GiB.
      max_examples: read otherwise, evenly spaced.
    """
    num, image_bytes = len(source), int(np.prod(source.image_shape))
    if num * image_bytes > STATISTICS_BYTES:
        num = min(num, max_examples)
    indices = np.arange(num) * len(source) // num
    step = max(1, CHUNK_BYTES // image_bytes)
    counts = np.zeros((source.image_shape[-1], 256), np.int64)
    for start in range(0, num, step):
        counts += images.histogram(source.read(indices[start : start + step])["image"])
    values = np.arange(256) / 255
    weights = counts / counts.sum(axis=1, keepdims=True)
    mean = weights @ values
    variance = (weights * (values - mean[:, None]) ** 2).sum(axis=1)
    # A channel of one value must not be divided by 0.
    std = np.maximum(np.sqrt(variance), 1 / 255)
    return tuple(mean.tolist()), tuple(std.tolist())


@dataclass(frozen=True)
class ImageSource:
    """Some examples of a store, converted to one shape."""

    store: Store
    indices: np.ndarray
    image_shape: tuple[int, int, int]

    @property
    def num_classes(self) -> int:
        return self.store.num_classes

    def __len__(self) -> int:
        return len(self.indices)

    def labels(self) -> np.ndarray:
        return self.store.labels()[self.indices]

    def read(
        self, indices: np.ndarray, crop_seed: tuple[int, ...] | None = None
    ) -> dict[str, np.ndarray]:
        """Return `image` and `label` of some examples, as `Source` describes."""
        stored, labels = self.store.read(self.indices[indices])
        size, _, channels = self.image_shape
        if crop_seed is not None:
            stored = [
                images.random_resized_crop(image, size, (*crop_seed, int(index)))
                for image, index in zip(stored, indices, strict=True)
            ]
        elif self.store.image_shape[:2] != self.image_shape[:2]:
            stored = [images.centre_fit(image, size) for image in stored]
        image = images.to_channels(np.asarray(stored), channels)
        return {"image": image, "label": labels}

    def subset(self, indices: np.ndarray) -> "ImageSource":
        return dataclasses.replace(self, indices=self.indices[indices])


# Kind of source -> what opens its splits.
SOURCES: dict[str, Callable[[str, DataConfig], Opened]] = {
    "digits": open_digits,
    "synthetic": open_synthetic,
    "tfds": open_tfds,
}
