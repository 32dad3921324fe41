"""Array names and layouts in other libraries, and comparison of files with models."""

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeVar

import numpy as np

T = TypeVar("T")

Library = Literal["timm", "torchvision"]

# Name of a parameter or statistic in our layers -> name in PyTorch's layers.
LEAVES = {
    "kernel": "weight",
    "scale": "weight",
    "bias": "bias",
    "mean": "running_mean",
    "var": "running_var",
}
# Array shapes by name.
Shapes = Mapping[str, tuple[int, ...]]
# Maximum number of array names in a message, per type of difference.
NUM_LISTED = 3
# Batch counter of PyTorch's batch norm, unused in jaxtrain.
UNUSED = r"(.*\.)?num_batches_tracked"


class TorchLayout(NamedTuple):
    """Conversions of an array between the layouts of PyTorch and jaxtrain, as views."""

    from_torch: Callable[[np.ndarray], np.ndarray]
    to_torch: Callable[[np.ndarray], np.ndarray]


def _from_torch(array: np.ndarray) -> np.ndarray:
    """Transpose a kernel to jaxtrain's layout.

    (out, in, rows, columns) -> (rows, columns, in, out); (out, in) -> (in, out).
    """
    return array.transpose(2, 3, 1, 0) if array.ndim == 4 else array.T


def _to_torch(array: np.ndarray) -> np.ndarray:
    return array.transpose(3, 2, 0, 1) if array.ndim == 4 else array.T


# Default: kernels of convolutions and dense layers, and vectors.
USUAL = TorchLayout(_from_torch, _to_torch)
# Dense kernel (in, out), a 1x1 convolution in PyTorch.
POINTWISE = TorchLayout(lambda x: x[:, :, 0, 0].T, lambda x: x.T[:, :, None, None])
# Vector (channels,), of shape (channels, 1, 1) in PyTorch.
PER_CHANNEL = TorchLayout(lambda x: x[:, 0, 0], lambda x: x[:, None, None])
# Arrays in jaxtrain's files, which are not converted.
AS_IT_IS = TorchLayout(lambda x: x, lambda x: x)


def convolution(size: int) -> TorchLayout:
    """Return the layout of dense kernels that PyTorch stores as convolution kernels.

    Args:
      size: Height and width of the convolution's input. The input of our dense layer
        is flattened as (rows, columns, channels).
    """

    def from_torch(x: np.ndarray) -> np.ndarray:
        return x.transpose(2, 3, 1, 0).reshape(-1, len(x))

    def to_torch(x: np.ndarray) -> np.ndarray:
        return x.reshape(size, size, -1, x.shape[1]).transpose(3, 2, 0, 1)

    return TorchLayout(from_torch, to_torch)


def after_flatten(size: int) -> TorchLayout:
    """Return the layout of dense kernels that follow a flattened feature map.

    Our inputs are flattened as (rows, columns, channels), PyTorch's as (channels, rows,
    columns).

    Args:
      size: Height and width of the layer's input before flattening.
    """
    full_size = convolution(size)

    def from_torch(x: np.ndarray) -> np.ndarray:
        return full_size.from_torch(x.reshape(len(x), -1, size, size))

    def to_torch(x: np.ndarray) -> np.ndarray:
        return full_size.to_torch(x).reshape(x.shape[1], -1)

    return TorchLayout(from_torch, to_torch)


class Differences(NamedTuple):
    """Names of the arrays in which a weight file and a model differ."""

    missing: list[str]
    unknown: list[str]
    misshapen: list[str]

    def __bool__(self) -> bool:
        return any(self)

    @property
    def number(self) -> int:
        return sum(map(len, self))

    def __str__(self) -> str:
        kinds = ("missing", "unknown to the model", "of another shape")
        return ", ".join(
            f"{len(names)} {kind} ({', '.join(names[:NUM_LISTED])}"
            f"{', ...' * (len(names) > NUM_LISTED)})"
            for kind, names in zip(kinds, self, strict=True)
            if names
        )


@dataclass(frozen=True, eq=False)
class ArrayNames:
    """Array names of a model family in another library.

    Attributes:
      layers: Mapping from patterns of our layer paths, such as `stage1_block2/conv1`,
        to names in the library, with the pattern's groups as `{0}`, `{1}`; `{1:-1}`
        subtracts one. A pattern may also match an array path, such as
        `.../layer_scale/scale`. The first match is used. The first entry is for the
        first convolution.
      layouts: Mapping from patterns of our array paths to layouts; `USUAL` if no
        pattern matches.
      unused: Patterns of names in the library without a counterpart in our model.
      older: Mapping from patterns of names in older files to current names, with the
        pattern's groups as `{0}`, `{1}`.
    """

    layers: Mapping[str, str]
    layouts: Mapping[str, TorchLayout] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    older: Mapping[str, str] = field(default_factory=dict)

    @property
    def first_conv(self) -> str:
        """Name of the first convolution in the library."""
        return next(iter(self.layers.values()))

    @property
    def classifier(self) -> str:
        """Name of the classifier in the library."""
        return self.layers["head/linear"]

    # Cached, as matching all patterns takes 20 ms for a deep model. All instances are
    # global, so it is harmless that the cache keeps them alive.
    @functools.cache  # noqa: B019
    def name(self, path: str) -> str:
        """Return the library's name of our array path, such as `head/linear/kernel`."""
        layer, _, leaf = path.rpartition("/")
        for pattern, theirs in self.layers.items():
            if match := re.fullmatch(pattern, path):
                return theirs.format(*map(_part, match.groups()))
            if match := re.fullmatch(pattern, layer):
                return f"{theirs.format(*map(_part, match.groups()))}.{LEAVES[leaf]}"
        raise AssertionError(f"{path} has no name in the library")

    def layout(self, path: str) -> TorchLayout:
        """Return the layout for our array path, such as `head/linear/kernel`."""
        for pattern, layout in self.layouts.items():
            if re.fullmatch(pattern, path):
                return layout
        return USUAL

    def shapes(self, ours: Shapes) -> Shapes:
        """Convert our array names and shapes to the library's."""
        theirs = {
            self.name(path): self.layout(path).to_torch(np.broadcast_to(0, shape)).shape
            for path, shape in ours.items()
        }
        assert len(theirs) == len(ours)
        return theirs

    def is_unused(self, name: str) -> bool:
        """Whether an array of the library has no counterpart in our model."""
        return any(re.fullmatch(p, name) for p in (UNUSED, *self.unused))

    def differences(self, stored: Shapes, wanted: Shapes) -> Differences:
        """Compare array shapes of a file and a model, keyed by the library's names."""
        missing = [n for n in wanted if n not in stored and not self.is_unused(n)]
        unknown = [n for n in stored if n not in wanted and not self.is_unused(n)]
        misshapen = [
            f"{n}: {list(stored[n])}, expected {list(wanted[n])}"
            for n in wanted
            if n in stored and stored[n] != wanted[n]
        ]
        return Differences(missing, unknown, misshapen)

    def renamed(self, stored: Mapping[str, T]) -> Mapping[str, T]:
        """Convert older array names to current names, unless the file has both."""
        renamed: dict[str, T] = {}
        for name, value in stored.items():
            matches = ((re.fullmatch(p, name), now) for p, now in self.older.items())
            now = next((now.format(*m.groups()) for m, now in matches if m), name)
            renamed[name if now in stored else now] = value
        return renamed


class OwnNames(ArrayNames):
    """Names and layouts in jaxtrain's files: paths with dots instead of slashes."""

    def name(self, path: str) -> str:  # pyright: ignore
        return path.replace("/", ".")

    def layout(self, path: str) -> TorchLayout:
        return AS_IT_IS

    def is_unused(self, name: str) -> bool:
        return False


OWN = OwnNames({})


class _Number(int):
    """Index of a layer; a format spec such as `-1` is added to the index."""

    def __format__(self, offset: str) -> str:
        return str(int(self) + int(offset or 0))


def _part(group: str) -> "str | _Number":
    return _Number(group) if group.isdecimal() else group
