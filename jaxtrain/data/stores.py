"""Stores, and those that read no files: digits and synthetic images."""

import functools
import importlib.util
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import jax
import numpy as np

from jaxtrain.config import DataConfig
from jaxtrain.data.files import StoredFile
from jaxtrain.data.problems import Remark
from jaxtrain.data.slices import NamedSplits, groups_of, stratified_split
from jaxtrain.errors import UserError

Images = np.ndarray | Sequence[np.ndarray] | Sequence[StoredFile]


class Store(Protocol):
    """A set as stored; height and width are None where images differ in size.

    A store whose images lie in memory, or are mapped there, may say so, `in_memory`:
    one thread then copies them faster than several. One that has passed over files may
    have `remarks`, as `remarks_of` returns them. One that can tell the targets without
    its images may have `targets`, as `targets_of` calls it: tasks then look at all. One
    whose targets have a place in the image has `place` (see `target_transform.py`), and
    `read` returns a list of what it takes.

    What its targets mean, and which facts there are to know of them, such as
    `num_classes` and `class_names`, is between the store and the task.
    """

    @property
    def facts(self) -> Mapping[str, Any]: ...
    @property
    def image_shape(self) -> tuple[int | None, int | None, int]: ...
    def strata(self, indices: np.ndarray) -> np.ndarray:
        """Return numbers of the groups that a held-out part takes evenly, (n,).

        Where an example may be in several: whether it is in each, bool (n, groups).
        """
        ...

    def read(self, indices: np.ndarray) -> tuple[Images, Any]:
        """Return images, as one array if they have one size, and targets.

        Image files are decoded by those who ask, who know the size that they need.
        The targets are an array (n, ...), or a pytree of them.
        """
        ...


def remarks_of(store: Store) -> tuple[Remark, ...]:
    """Return the remarks of a store; most have none."""
    return getattr(store, "remarks", ())


def describe_remarks(remarks: Sequence[Remark]) -> dict[str, str]:
    """Return the texts of remarks by their titles; those of one title are joined."""
    rows: dict[str, str] = {}
    for title, text, _ in remarks:
        rows[title] = f"{rows[title]}; {text}" if title in rows else text
    return rows


def targets_of(store: Store, indices: np.ndarray) -> Any | None:
    """Return targets, (n, ...), if the store has them by themselves; else None."""
    targets = getattr(store, "targets", None)
    return targets(indices) if callable(targets) else None


# A set: a store of all its examples, and which of them each split has.
Opened = tuple[Store, NamedSplits]
# Name behind the colon of `data.source`, and the section -> the set.
OpenStore = Callable[[str, DataConfig], Opened]


class WithTargets:
    """Targets that a store has without its images, and their groups."""

    target: Any
    facts: Mapping[str, Any]

    def strata(self, indices: np.ndarray) -> np.ndarray:
        """Return groups of the targets (`groups_of`)."""
        return self._groups[indices]

    def targets(self, indices: np.ndarray) -> Any:
        return jax.tree.map(lambda x: x[indices], self.target)

    @functools.cached_property
    def _groups(self) -> np.ndarray:
        return groups_of(self.target, self.facts)


@dataclass(frozen=True)
class ArrayStore(WithTargets):
    """A set in memory: images (N, H, W, C) and their targets, (N, ...) each."""

    images: np.ndarray
    target: Any
    facts: Mapping[str, Any]
    remarks: tuple[Remark, ...] = ()
    in_memory: ClassVar[bool] = True

    @property
    def image_shape(self) -> tuple[int, int, int]:
        return self.images.shape[1:]

    def read(self, indices: np.ndarray) -> tuple[np.ndarray, Any]:
        return self.images[indices], self.targets(indices)


@dataclass(frozen=True)
class SyntheticStore:
    """A 4x4 grid that tells the class, half hidden in noise.

    An example is a function of its number alone: a counter-based generator (Philox,
    Salmon et al. 2011) draws it when it is read.
    """

    image_shape: tuple[int, int, int]
    num_classes: int

    @property
    def facts(self) -> Mapping[str, Any]:
        return {"num_classes": self.num_classes}

    def strata(self, indices: np.ndarray) -> np.ndarray:
        return (indices % self.num_classes).astype(np.int32)

    def read(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        height, width, channels = self.image_shape
        rows, columns = np.arange(height) * 4 // height, np.arange(width) * 4 // width
        label = self.strata(indices)
        grids = {c: _random_bytes(1, c, (4, 4, channels)) for c in set(label.tolist())}
        image = np.stack([_random_bytes(0, i, self.image_shape) for i in indices])
        image >>= 1
        for one, c in zip(image, label.tolist(), strict=True):
            one += grids[c][:, columns][rows] >> 1
        return image, label


def open_digits(name: str, config: DataConfig) -> Opened:
    """Open scikit-learn's 1,797 grey 8x8 digits: 1,437 to train, 360 to test."""
    # Its file, as `load_digits` reads it: to import scikit-learn takes a second of CPU
    # time, as long as all else that a run imports.
    package = importlib.util.find_spec("sklearn")
    assert package is not None and package.origin is not None
    file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    rows = np.loadtxt(file, delimiter=",")
    pixels = np.rint(rows[:, :-1] * (255 / 16)).astype(np.uint8)
    pixels = pixels.reshape(-1, 8, 8, 1)
    label = rows[:, -1].astype(np.int32)
    store = ArrayStore(pixels, label, {"num_classes": 10})
    train, test = stratified_split(label, 360 / len(label), seed=0)
    return store, {"train": [train], "test": [test]}


def open_synthetic(name: str, config: DataConfig) -> Opened:
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
    train, test = np.split(indices, [num_train])
    store = SyntheticStore((height, width, channels), num_classes)
    return store, {"train": [train], "test": [test]}


def _random_bytes(purpose: int, number: int, shape: tuple[int, ...]) -> np.ndarray:
    size = int(np.prod(shape))
    draws = np.random.Philox(key=[purpose, number]).random_raw(-(-size // 8))
    return draws.view(np.uint8)[:size].reshape(shape)
