"""Data sets with a length and random access, read by batch.

A `Store` is a set as it lies on disk or in memory; a `Source` is some of its examples
in the size and channels of the config. To add a kind of data: write its store and a
function that opens its splits, and add a row to `SOURCES`.
"""

import dataclasses
import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from jaxtrain.config import DataConfig
from jaxtrain.data import images, prepare
from jaxtrain.errors import UserError

# Second half of the key that chooses what is held out; the data order has the epoch.
SPLIT_STREAM = 2**32
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


class Store(Protocol):
    """A set as stored; height and width are None where images differ in size."""

    @property
    def num_classes(self) -> int: ...
    @property
    def image_shape(self) -> tuple[int | None, int | None, int]: ...
    def labels(self) -> np.ndarray: ...
    def read(
        self, indices: np.ndarray
    ) -> tuple[np.ndarray | Sequence[np.ndarray], np.ndarray]:
        """Return images, as one array if they have one size, and labels."""
        ...


# The splits that a set names; and what opens one: a store, and which of its examples.
Opened = tuple[list[str], Callable[[str], tuple[Store, np.ndarray]]]


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
        near = difflib.get_close_matches(kind, SOURCES, n=1)
        hint = f"; perhaps you meant {near[0]}" if near else ""
        raise UserError(
            f"data.source = {config.source!r}: expected digits, tfds:NAME or "
            f"synthetic:HxWxC/CLASSES[/EXAMPLES]{hint}"
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


def stratified_split(
    labels: np.ndarray, fraction: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Hold out `round(fraction * N)` examples, within 1 of the fraction of each class.

    Args:
      labels: of all examples, (N,).
      fraction: of the examples held out; the largest remainders are rounded up.
      seed: of the choice.

    Returns:
      The rising indices of the examples kept, and of those held out.
    """
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    shares = fraction * counts
    quotas = np.floor(shares).astype(np.int64)
    rest = round(fraction * len(labels)) - quotas.sum()
    quotas[np.argsort(quotas - shares, kind="stable")[:rest]] += 1
    # Raw draws stay the same from one version of NumPy to the next (NEP 19).
    draws = np.random.Philox(key=[seed, SPLIT_STREAM]).random_raw(len(labels))
    order = np.lexsort((draws, classes))
    starts = np.cumsum(counts) - counts
    rank_in_class = np.arange(len(labels)) - starts[classes[order]]
    held_out = rank_in_class < quotas[classes[order]]
    return np.sort(order[~held_out]), np.sort(order[held_out])


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


@dataclass(frozen=True)
class ArrayStore:
    """A set in memory: images (N, H, W, C) and their labels (N,)."""

    images: np.ndarray
    label: np.ndarray
    num_classes: int

    @property
    def image_shape(self) -> tuple[int, int, int]:
        return self.images.shape[1:]

    def labels(self) -> np.ndarray:
        return self.label

    def read(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.images[indices], self.label[indices]


@dataclass(frozen=True)
class SyntheticStore:
    """A 4x4 grid that tells the class, half hidden in noise.

    An example is a function of its number alone: a counter-based generator (Philox,
    Salmon et al. 2011) draws it when it is read.
    """

    image_shape: tuple[int, int, int]
    num_classes: int
    num_examples: int

    def labels(self) -> np.ndarray:
        return np.arange(self.num_examples, dtype=np.int32) % self.num_classes

    def read(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        height, width, channels = self.image_shape
        rows, columns = np.arange(height) * 4 // height, np.arange(width) * 4 // width
        label = (indices % self.num_classes).astype(np.int32)
        grids = {c: _random_bytes(1, c, (4, 4, channels)) for c in set(label.tolist())}
        image = np.stack([_random_bytes(0, i, self.image_shape) for i in indices])
        image >>= 1
        for one, c in zip(image, label.tolist(), strict=True):
            one += grids[c][:, columns][rows] >> 1
        return image, label


def digits(name: str, config: DataConfig) -> Opened:
    """Open scikit-learn's 1,797 grey 8x8 digits: 1,437 to train, 360 to test."""
    from sklearn.datasets import load_digits

    if name:
        raise UserError(f"data.source = {config.source!r}: expected digits")
    pixels, label = load_digits(return_X_y=True)
    pixels = np.rint(pixels * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)
    label = label.astype(np.int32)
    store = ArrayStore(pixels, label, num_classes=10)
    train, test = stratified_split(label, 360 / len(label), seed=0)
    return _named(config, store, {"train": train, "test": test})


def synthetic(name: str, config: DataConfig) -> Opened:
    """Open HxWxC/CLASSES[/EXAMPLES], generated; a quarter as many examples to test."""
    match = re.fullmatch(r"(\d+)x(\d+)x(\d+)/(\d+)(?:/(\d+))?", name)
    numbers = [int(n) for n in match.groups("2048")] if match else [0]
    if 0 in numbers:
        raise UserError(
            f"data.source = {config.source!r}: expected "
            "synthetic:HxWxC/CLASSES[/EXAMPLES], such as synthetic:32x32x3/10/2048"
        )
    height, width, channels, num_classes, num_train = numbers
    indices = np.arange(num_train + max(1, num_train // 4))
    store = SyntheticStore((height, width, channels), num_classes, len(indices))
    train, test = np.split(indices, [num_train])
    return _named(config, store, {"train": train, "test": test})


def tfds(name: str, config: DataConfig) -> Opened:
    """Open a TFDS set that is prepared as array_record; TensorFlow is not needed."""
    builder = prepare.open_prepared(name, config.data_dir)

    def open_split(split: str) -> tuple[Store, np.ndarray]:
        store = prepare.open_split(name, builder, split)
        return store, np.arange(len(store))

    return list(builder.info.splits), open_split


# Kind of source -> what opens its splits.
SOURCES: dict[str, Callable[[str, DataConfig], Opened]] = {
    "digits": digits,
    "synthetic": synthetic,
    "tfds": tfds,
}


def _named(config: DataConfig, store: Store, parts: dict[str, np.ndarray]) -> Opened:
    def open_split(split: str) -> tuple[Store, np.ndarray]:
        if split not in parts:
            raise UserError(
                f"split {split!r}: {config.source} has the splits {', '.join(parts)}, "
                "and no slices"
            )
        return store, parts[split]

    return list(parts), open_split


def _random_bytes(purpose: int, number: int, shape: tuple[int, ...]) -> np.ndarray:
    size = int(np.prod(shape))
    draws = np.random.Philox(key=[purpose, number]).random_raw(-(-size // 8))
    return draws.view(np.uint8)[:size].reshape(shape)
