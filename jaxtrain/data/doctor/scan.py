"""A pass over all examples of a run, by threads; what is kept is small."""

import collections
import functools
import itertools
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from jaxtrain.data import ahead
from jaxtrain.data.doctor.look import Look, Rules, look_at
from jaxtrain.data.doctor.near import PRINT, fingerprints, perceptual_hashes
from jaxtrain.data.files import StoredFile
from jaxtrain.data.stores import Store

# The splits of a run, in order.
SPLITS = ("train", "validation", "test")
CHUNK = 16
# Chunks for each thread that are read, or wait to be taken.
IN_FLIGHT = 2


@dataclass(frozen=True)
class Scan:
    """What was seen of each example, a row each; about 350 bytes and its name.

    Attributes:
      index: its number in the store.
      split: the number of its split in `SPLITS`.
      names: as messages call it.
      labels: its class; None if the targets are no classes.
      unreadable: row -> why it cannot be read.
      remarks: what is unusual of the file -> rows.
      modes: mode of the stored pixels -> how many.
      formats: format of the files -> how many.
      odd_modes: rows that are not stored as most of them are.
      size: height and width in pixels, (N, 2).
      pixel_hash: of the decoded pixels.
      contrast: the largest standard deviation of a channel, of pixels in 0..255.
      perceptual: 64 bits, of which similar images share most.
      prints: the image in grey, small, uint8 (N, PRINT, PRINT).
      mean: of each channel over the training split, in 0..1; each image counts alike.
      std: standard deviation, likewise.
    """

    index: np.ndarray
    split: np.ndarray
    names: list[str]
    labels: np.ndarray | None
    unreadable: dict[int, str]
    remarks: Mapping[str, list[int]]
    modes: Mapping[str, int]
    formats: Mapping[str, int]
    odd_modes: dict[int, str]
    size: np.ndarray
    pixel_hash: np.ndarray
    contrast: np.ndarray
    perceptual: np.ndarray
    prints: np.ndarray
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.index)

    @property
    def readable(self) -> np.ndarray:
        """Whether the image of each row can be read, (N,)."""
        readable = np.ones(len(self), bool)
        readable[list(self.unreadable)] = False
        return readable

    @functools.cached_property
    def folder(self) -> str:
        """The folder that all files lie in, as their names begin."""
        first, last = (name.split("/") for name in (min(self.names), max(self.names)))
        pairs = zip(first[:-1], last[:-1], strict=False)
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)
        return "".join(f"{part}/" for part, _ in same)

    def count_examples(self) -> dict[str, int]:
        """Return the number of examples of each split that has any."""
        counts = np.bincount(self.split, minlength=len(SPLITS)).tolist()
        return {name: n for name, n in zip(SPLITS, counts, strict=True) if n}

    def count_unreadable(self) -> dict[str, int]:
        """Return the number of unreadable images of each split."""
        bad = self.split[~self.readable]
        counts = np.bincount(bad, minlength=len(SPLITS)).tolist()
        return dict(zip(SPLITS, counts, strict=True))


class _Chunk(NamedTuple):
    names: list[str]
    looks: list[Look]
    targets: Any
    perceptual: np.ndarray
    prints: np.ndarray


def scan(
    store: Store,
    splits: Mapping[str, np.ndarray],
    rules: Rules,
    source: str,
    progress: Callable[[int], object] = lambda num: None,
) -> Scan:
    """Read, decode and describe every example of the splits once.

    Args:
      store: Store of the set.
      splits: Numbers of the examples in the store, by split.
      rules: Rules that images must meet.
      source: Name of the set in messages.
      progress: Called with the number of examples done since its last call.

    Raises:
      UserError: the store cannot be read.
    """
    index = np.concatenate(list(splits.values()))
    codes = [np.full(len(v), SPLITS.index(name)) for name, v in splits.items()]
    # What two splits share, as data.allow_overlap permits, is looked at once.
    index, first = np.unique(index, return_index=True)
    rows = _Rows(index, np.concatenate(codes)[first].astype(np.uint8))
    starts = range(0, len(index), CHUNK)

    def read(start: int) -> _Chunk:
        return _read(store, index[start : start + CHUNK], rules, source)

    with warnings.catch_warnings():
        # Of damaged files, which are told in a better way.
        warnings.simplefilter("ignore")
        # What takes the time, decoding and hashing, lets other threads go on.
        threads = len(os.sched_getaffinity(0))
        for chunk in ahead.by_threads(read, starts, threads, IN_FLIGHT * threads):
            num_done = len(rows.names)
            rows.add(chunk)
            progress(len(rows.names) - num_done)
    return rows.finish("num_classes" in store.facts)


def _read(store: Store, index: np.ndarray, rules: Rules, source: str) -> _Chunk:
    stored, targets = store.read(index)
    names = [
        one.name if isinstance(one, StoredFile) else f"{source}: example {i}"
        for one, i in zip(stored, index, strict=True)
    ]
    looks = [look_at(one, rules) for one in stored]
    small = np.stack([look.small for look in looks])
    return _Chunk(names, looks, targets, perceptual_hashes(small), fingerprints(small))


@dataclass
class _Rows:
    """Takes the chunks of a scan, in order."""

    index: np.ndarray
    split: np.ndarray
    names: list[str] = field(default_factory=list)
    targets: list[Any] = field(default_factory=list)
    unreadable: dict[int, str] = field(default_factory=dict)
    remarks: dict[str, list[int]] = field(
        default_factory=lambda: collections.defaultdict(list)
    )
    modes: list[str] = field(default_factory=list)
    formats: dict[str, int] = field(default_factory=collections.Counter)
    moments: Any = 0.0
    num_train: int = 0

    def __post_init__(self) -> None:
        num = len(self.index)
        self.size = np.zeros((num, 2), np.int32)
        self.pixel_hash, self.perceptual = np.zeros((2, num), np.uint64)
        self.contrast = np.zeros(num, np.float32)
        self.prints = np.zeros((num, PRINT, PRINT), np.uint8)

    def add(self, chunk: _Chunk) -> None:
        start = len(self.names)
        here = slice(start, start + len(chunk.names))
        self.names += chunk.names
        self.targets.append(chunk.targets)
        self.perceptual[here], self.prints[here] = chunk.perceptual, chunk.prints
        for row, look in enumerate(chunk.looks, start):
            # One text for all that are alike: a million of them take no memory.
            self.modes.append(sys.intern(look.mode))
            if look.unreadable:
                self.unreadable[row] = look.unreadable
            else:
                self._add(row, look)

    def _add(self, row: int, look: Look) -> None:
        self.size[row] = look.height, look.width
        self.pixel_hash[row] = look.pixel_hash
        mean, square = look.moments
        self.contrast[row] = 255 * np.sqrt(np.maximum(square - mean**2, 0)).max()
        if self.split[row] == SPLITS.index("train"):
            self.moments = self.moments + look.moments
            self.num_train += 1
        for remark in look.remarks:
            self.remarks[remark].append(row)
        if look.format:
            self.formats[look.format] += 1

    def finish(self, has_classes: bool) -> Scan:
        labels = None
        if has_classes and all(_is_label(target) for target in self.targets):
            labels = np.concatenate(self.targets).astype(np.int64)
        modes = collections.Counter(mode for mode in self.modes if mode)
        usual = modes.most_common(1)[0][0] if modes else ""
        odd = {i: m for i, m in enumerate(self.modes) if m not in (usual, "")}
        # Where no training image can be read, of one channel.
        moments = self.moments if self.num_train else np.zeros((2, 1))
        mean, square = np.reshape(moments / max(self.num_train, 1), (2, -1))
        std = np.sqrt(np.maximum(square - mean**2, 0))
        return Scan(
            index=self.index,
            split=self.split,
            names=self.names,
            labels=labels,
            unreadable=self.unreadable,
            remarks=self.remarks,
            modes=dict(modes.most_common()),
            formats=self.formats,
            odd_modes=odd,
            size=self.size,
            pixel_hash=self.pixel_hash,
            contrast=self.contrast,
            perceptual=self.perceptual,
            prints=self.prints,
            mean=tuple(mean.tolist()),
            std=tuple(std.tolist()),
        )


def _is_label(target: Any) -> bool:
    """Whether a target is a class number for each example."""
    array = isinstance(target, np.ndarray) and target.ndim == 1
    return array and np.issubdtype(target.dtype, np.integer)
