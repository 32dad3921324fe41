"""Multi-threaded scan that collects the properties of all examples."""

import collections
import functools
import itertools
import os
import sys
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from jaxtrain.console import progress
from jaxtrain.data import ahead, defects
from jaxtrain.data.boxes import NAMES as BOX_NAMES
from jaxtrain.data.files import StoredFile, UnreadableError
from jaxtrain.data.image_source import Source
from jaxtrain.data.input_kind import input_of
from jaxtrain.data.pixel_classes import IGNORED
from jaxtrain.plugins.doctor.look import Look, hash_pixels, look_at
from jaxtrain.plugins.doctor.look_targets import TargetLook, look_at_target
from jaxtrain.plugins.doctor.near import (
    PRINT,
    equal_ones,
    fingerprints,
    perceptual_hashes,
)
from jaxtrain.plugins.doctor.scan_values import SPLITS, are_labels, deviation, per_split

CHUNK = 16
# Number of chunks in flight per thread.
IN_FLIGHT = 2


class Scan:
    """Properties of the N examples of a data set; a *row* is an index from 0 to N - 1.

    Attributes:
      noun: Word for an example in messages: image, or sound.
      index: Index of each example in the store, (N,).
      split: Split of each example, as an index into `SPLITS`, (N,).
      rows: Split -> rows of its examples; splits may overlap.
      class_names: Names of the classes; empty if targets are not classes.
      labels: Class of each example, (N,); None if targets are not classes.
      names: Name of each example in messages.
      unreadable: Row of an unreadable example -> reason.
      remarks: Remark of `Look.remarks` -> rows with this remark.
      formats: Format of the files -> number of files.
      size: Height and width in pixels, (N, 2); 1 and the length in ms for sounds.
      pixel_hash: Hash of the decoded pixels, uint64 (N,); see `_rehash_equal`.
      contrast: Largest standard deviation among channels, for pixels in 0..255, (N,).
      perceptual: pHash of 64 bits, uint64 (N,).
      prints: Grey thumbnail of each example, uint8 (N, PRINT, PRINT).
      bad_targets: Row -> reason why the target does not fit its image.
      pixels: Number of mask pixels per split and class, (splits, 256).
      boxes: Number of boxes per split and class, before and after cropping and
        resizing, (splits, 2, classes), without crowds.
    """

    def __init__(self, index: np.ndarray, split: np.ndarray, facts: Mapping[str, Any]):
        num, num_classes = len(index), facts.get("num_classes")
        self.index, self.split = index, split
        self.rows: dict[str, np.ndarray] = {}
        self.noun = input_of(facts).noun
        names = facts.get("class_names")
        names = range(num_classes or 0) if names is None else names
        self.class_names: tuple[str, ...] = tuple(map(str, names))
        self.labels = None if num_classes is None else np.zeros(num, np.int64)
        self.names: list[str] = []
        self.unreadable: dict[int, str] = {}
        self.remarks: dict[str, list[int]] = collections.defaultdict(list)
        self.formats = collections.Counter[str]()
        self.size = np.zeros((num, 2), np.int32)
        self.pixel_hash, self.perceptual = np.zeros((2, num), np.uint64)
        self.contrast = np.zeros(num, np.float32)
        self.prints = np.zeros((num, PRINT, PRINT), np.uint8)
        self.bad_targets: dict[int, str] = {}
        self.pixels = np.zeros((len(SPLITS), IGNORED + 1), np.int64)
        num_kinds = len(facts.get(BOX_NAMES, ()))
        self.boxes = np.zeros((len(SPLITS), 2, num_kinds), np.int64)
        self._modes: list[str] = []
        self._moments, self._num_train = np.zeros((2, 1)), 0

    def __len__(self) -> int:
        return len(self.index)

    def add(
        self, names: list[str], looks: list[Look], targets: Any, hashes: Any
    ) -> None:
        """Append the next examples; `hashes` are their `perceptual` and `prints`."""
        start = len(self.names)
        here = slice(start, start + len(names))
        self.names += names
        if self.labels is not None:
            if are_labels(targets):
                self.labels[here] = targets
            else:
                self.labels, self.class_names = None, ()
        self.perceptual[here], self.prints[here] = hashes
        for row, look in enumerate(looks, start):
            # Share equal strings, to save memory.
            self._modes.append(sys.intern(look.mode))
            if look.unreadable:
                self.unreadable[row] = look.unreadable
                continue
            self.size[row] = look.height, look.width
            self.pixel_hash[row] = look.signature
            self.contrast[row] = 255 * deviation(look.moments).max()
            if self.split[row] == SPLITS.index("train"):
                self._moments = self._moments + look.moments
                self._num_train += 1
            for remark in look.remarks:
                self.remarks[remark].append(row)
            if look.format:
                self.formats[look.format] += 1

    def add_targets(self, start: int, target_looks: Sequence[TargetLook]) -> None:
        """Record the properties of targets, from row `start` on."""
        for row, one in enumerate(target_looks, start):
            if one.problem:
                self.bad_targets[row] = one.problem
            if one.pixels is not None:
                self.pixels[self.split[row]] += one.pixels
            if one.boxes is not None:
                self.boxes[self.split[row]] += one.boxes

    @functools.cached_property
    def readable(self) -> np.ndarray:
        """Whether the image of each row is readable, bool (N,)."""
        readable = np.ones(len(self), bool)
        readable[list(self.unreadable)] = False
        return readable

    @functools.cached_property
    def modes(self) -> dict[str, int]:
        """Mode of the stored pixels -> number of images, most frequent first."""
        return dict(collections.Counter(filter(None, self._modes)).most_common())

    @property
    def odd_modes(self) -> dict[int, str]:
        """Row -> mode, for images without the most frequent mode."""
        usual = next(iter(self.modes), "")
        return {i: m for i, m in enumerate(self._modes) if m not in (usual, "")}

    @functools.cached_property
    def folder(self) -> str:
        """Path of the common directory of all files, with a final slash, or empty."""
        first, last = (name.split("/") for name in (min(self.names), max(self.names)))
        pairs = zip(first[:-1], last[:-1], strict=False)
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)
        return "".join(f"{part}/" for part, _ in same)

    def split_of(self, row: int) -> str:
        """Name of the split of an example."""
        return SPLITS[self.split[row]]

    def class_of(self, row: int) -> str | None:
        """Name of the class of an example, or None if there are no classes."""
        if self.labels is None:
            return None
        number, names = int(self.labels[row]), self.class_names
        return names[number] if 0 <= number < len(names) else str(number)

    def count_classes(self) -> np.ndarray:
        """Number of readable examples per split and class, (splits, classes)."""
        counts = np.zeros((len(SPLITS), len(self.class_names)), np.int64)
        if self.labels is not None:
            good = (self.labels >= 0) & (self.labels < counts.shape[1]) & self.readable
            np.add.at(counts, (self.split[good], self.labels[good]), 1)
        return counts

    def class_sizes(self) -> list[tuple[str, dict[str, int]]]:
        """Name of each class, and its number of examples per non-empty split."""
        splits, counts = list(self.count_examples()), self.count_classes()
        rows = counts[[SPLITS.index(name) for name in splits]].T.tolist()
        return [
            (name, dict(zip(splits, row, strict=True)))
            for name, row in zip(self.class_names, rows, strict=True)
        ]

    def count_examples(self) -> dict[str, int]:
        """Number of examples of each non-empty split."""
        return {name: num for name, num in per_split(self.split).items() if num}

    def count_unreadable(self) -> dict[str, int]:
        """Number of unreadable images of each split."""
        return per_split(self.split[~self.readable])

    def over_limit(self, bad: Collection[int], max_fraction: float) -> list[str]:
        """Return texts such as "3 of 60 in train" for splits above the limit.

        Args:
          bad: Rows of bad examples.
          max_fraction: Maximum fraction of bad examples of a split.
        """
        is_bad = np.zeros(len(self), bool)
        is_bad[list(bad)] = True
        numbers = {name: int(is_bad[rows].sum()) for name, rows in self.rows.items()}
        return [
            f"{num} of {len(self.rows[name])} in {name}"
            for name, num in numbers.items()
            if defects.too_many(num, len(self.rows[name]), max_fraction)
        ]

    def statistics(self) -> tuple[list[float], list[float]]:
        """Return the mean and standard deviation per channel, for pixels in 0..1.

        All readable training images have equal weight. Without any, both are [0].
        """
        moments = self._moments / max(self._num_train, 1)
        return moments[0].tolist(), deviation(moments).tolist()

    def describe_sizes(self) -> dict[str, Any]:
        """Return the minimum, median and maximum size, and the number of sizes."""
        sizes = self.size[self.readable]
        if not len(sizes):
            return {"num_different": 0}
        return {
            "min": sizes.min(axis=0).tolist(),
            "median": np.median(sizes, axis=0).tolist(),
            "max": sizes.max(axis=0).tolist(),
            "num_different": len(np.unique(sizes, axis=0)),
        }


def scan(train: Source, splits: Mapping[str, np.ndarray], name: str) -> Scan:
    """Scan every example of the splits once, with a progress bar on a terminal.

    Args:
      train: Training split, with the store of all examples.
      splits: Split -> indices of its examples in the store.
      name: Name of the data set in messages.

    Raises:
      UserError: The store cannot be read.
    """
    index = np.concatenate(list(splits.values()))
    codes = [np.full(len(v), SPLITS.index(name)) for name, v in splits.items()]
    # With data.allow_overlap, splits may share examples: scan each once.
    index, first = np.unique(index, return_index=True)
    split = np.concatenate(codes)[first].astype(np.uint8)
    found = Scan(index, split, train.facts)
    found.rows = {name: np.searchsorted(index, v) for name, v in splits.items()}

    def read(start: int) -> tuple[list[str], list[Look], Any, Any, Any]:
        some = index[start : start + CHUNK]
        stored, targets = train.store.read(some)
        names = [
            one.name if isinstance(one, StoredFile) else f"{name}: example {i}"
            for one, i in zip(stored, some, strict=True)
        ]
        looks = [look_at(one, train) for one in stored]
        small = np.stack([look.small for look in looks])
        hashes = perceptual_hashes(small), fingerprints(small)
        target_looks = []
        if train.transforms_targets:
            pairs = zip(targets, looks, strict=True)
            target_looks = [
                look_at_target(target, look, train) for target, look in pairs
            ]
        return names, looks, targets, hashes, target_looks

    with warnings.catch_warnings(), progress("looking", len(index)) as advance:
        # Silence warnings on damaged files, which are reported separately.
        warnings.simplefilter("ignore")
        # The slow parts, decoding and hashing, release the GIL.
        threads = len(os.sched_getaffinity(0))
        starts = range(0, len(index), CHUNK)
        for chunk in ahead.by_threads(read, starts, threads, IN_FLIGHT * threads):
            *seen, target_looks = chunk
            found.add_targets(len(found.names), target_looks)
            found.add(*seen)
            advance(len(chunk[0]))
        _rehash_equal(found, train)
    return found


def _rehash_equal(found: Scan, train: Source) -> None:
    """Replace equal entries of `pixel_hash` with hashes of all pixels.

    Initially, entries are `Look.signature`, which can be equal for different images.
    """
    rows = np.flatnonzero(found.readable)
    again = [row for some in equal_ones(found.pixel_hash[rows]) for row in rows[some]]

    def hashed(place: int) -> Any:
        row = again[place]
        (image,), _ = train.store.read(found.index[row : row + 1])
        try:
            return hash_pixels(image, train)
        except UnreadableError:  # The file may have changed since the scan.
            return found.pixel_hash[row]

    threads = len(os.sched_getaffinity(0))
    places = range(len(again))
    hashes = ahead.by_threads(hashed, places, threads, IN_FLIGHT * threads)
    for row, found_hash in zip(again, hashes, strict=True):
        found.pixel_hash[row] = found_hash
