"""Store interface, and stores without files: arrays, digits, synthetic images."""

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
    """A data set on disk or in memory, with random access.

    `facts` is the metadata of the data set, such as `num_classes` and `class_names`.
    The store and the task agree on the meaning of facts and targets. `image_shape` is
    (H, W, C); H and W are None if images differ in size.

    Optional attributes:

    - `in_memory`: whether images are in memory or memory-mapped, so that one thread
      copies them faster than several threads.
    - `remarks`: remarks for users (see `remarks_of`).
    - `targets`: method that reads targets without images (see `targets_of`), so that
      tasks can check all targets.
    - `transform_target`: transform of spatial targets, such as masks (see
      `target_transform.py`). `read` then returns a list of untransformed targets.
    """

    @property
    def facts(self) -> Mapping[str, Any]: ...
    @property
    def image_shape(self) -> tuple[int | None, int | None, int]: ...
    def strata(self, indices: np.ndarray) -> np.ndarray:
        """Return the strata for hold-outs and balanced sampling, integers (n,).

        The stratum of an example is usually its class. For multi-label examples, return
        the label presence, bool (n, labels).
        """
        ...

    def read(self, indices: np.ndarray) -> tuple[Images, Any]:
        """Return the images and the targets of examples.

        Images of equal size are returned as one array, uint8 (n, H, W, C). Image files
        are returned encoded: the caller decodes them at the required size. Targets are
        a pytree of arrays (n, ...).
        """
        ...


def remarks_of(store: Store) -> tuple[Remark, ...]:
    """Return the remarks of a store, by default ()."""
    return getattr(store, "remarks", ())


def describe_remarks(remarks: Sequence[Remark]) -> dict[str, str]:
    """Map the titles of remarks to their texts; join texts with equal titles."""
    rows: dict[str, str] = {}
    for title, text, _ in remarks:
        rows[title] = f"{rows[title]}; {text}" if title in rows else text
    return rows


def targets_of(store: Store, indices: np.ndarray) -> Any | None:
    """Read targets, a pytree (n, ...), without images; return None if unsupported."""
    targets = getattr(store, "targets", None)
    return targets(indices) if callable(targets) else None


# A store of all examples, and the example indices of each split.
Opened = tuple[Store, NamedSplits]
# Function (argument of `data.source` after the colon, data config) -> opened data set.
OpenStore = Callable[[str, DataConfig], Opened]


class WithTargets:
    """Mixin for stores with all targets in memory; implements `strata` and `targets`.

    Attributes:
      target: Targets of all examples, a pytree of arrays (N, ...).
      facts: Metadata of the data set (`Store.facts`).
    """

    target: Any
    facts: Mapping[str, Any]

    def strata(self, indices: np.ndarray) -> np.ndarray:
        """Return the strata of examples, computed from the targets by `groups_of`."""
        return self._groups[indices]

    def targets(self, indices: np.ndarray) -> Any:
        return jax.tree.map(lambda x: x[indices], self.target)

    @functools.cached_property
    def _groups(self) -> np.ndarray:
        return groups_of(self.target, self.facts)


@dataclass(frozen=True)
class ArrayStore(WithTargets):
    """A data set in memory: images (N, H, W, C), and a pytree of targets (N, ...)."""

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
    """Synthetic images: noise plus a 4x4 pattern that depends on the class.

    `read` generates an example from its index with a counter-based generator (Philox,
    Salmon et al. 2011).
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
        for pixels, c in zip(image, label.tolist(), strict=True):
            pixels += grids[c][:, columns][rows] >> 1
        return image, label


def open_digits(name: str, config: DataConfig) -> Opened:
    """Open scikit-learn's 8x8 grey digits: 1,437 training and 360 test images."""
    # Unlike `load_digits`, this does not import scikit-learn: the import takes a second
    # of CPU time, as much as all other imports of a run.
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
    """Open synthetic images: HxWxC/CLASSES[/EXAMPLES].

    The training split has EXAMPLES examples, by default 2,048. The test split has a
    quarter as many.
    """
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
