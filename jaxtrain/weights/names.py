"""How other libraries name and lay out the arrays of a model, and what differs."""

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeVar

import numpy as np

T = TypeVar("T")

Library = Literal["timm", "torchvision"]

# Our name of an array -> its own there, after that of its layer.
LEAVES = {
    "kernel": "weight",
    "scale": "weight",
    "bias": "bias",
    "mean": "running_mean",
    "var": "running_var",
}
# Of arrays, by their names.
Shapes = Mapping[str, tuple[int, ...]]
# Names of each kind that a message lists.
NUM_LISTED = 3
# Counted by PyTorch's batch norm, for a kind of average that nobody here takes.
UNUSED = r"(.*\.)?num_batches_tracked"


class TorchLayout(NamedTuple):
    """How an array of PyTorch becomes ours, and back; neither copies."""

    from_torch: Callable[[np.ndarray], np.ndarray]
    to_torch: Callable[[np.ndarray], np.ndarray]


def _from_torch(array: np.ndarray) -> np.ndarray:
    """Return (rows, columns, in, out) of (out, in, rows, columns), or the transpose."""
    return array.transpose(2, 3, 1, 0) if array.ndim == 4 else array.T


def _to_torch(array: np.ndarray) -> np.ndarray:
    return array.transpose(3, 2, 0, 1) if array.ndim == 4 else array.T


# Kernels of convolutions and of dense layers, and vectors.
USUAL = TorchLayout(_from_torch, _to_torch)
# A dense layer (in, out) that is a convolution of 1x1 there.
POINTWISE = TorchLayout(lambda x: x[:, :, 0, 0].T, lambda x: x.T[:, :, None, None])
# A vector (channels,) that is (channels, 1, 1) there.
PER_CHANNEL = TorchLayout(lambda x: x[:, 0, 0], lambda x: x[:, None, None])
# Of files that were written here.
AS_IT_IS = TorchLayout(lambda x: x, lambda x: x)


def convolution(size: int) -> TorchLayout:
    """Return the layout of a dense layer that is a convolution of a whole image there.

    Its inputs have the order (rows, columns, channels), `size` rows and columns.
    """

    def from_torch(x: np.ndarray) -> np.ndarray:
        return x.transpose(2, 3, 1, 0).reshape(-1, len(x))

    def to_torch(x: np.ndarray) -> np.ndarray:
        return x.reshape(size, size, -1, x.shape[1]).transpose(3, 2, 0, 1)

    return TorchLayout(from_torch, to_torch)


def after_flatten(size: int) -> TorchLayout:
    """Return the layout of a dense layer whose input was an image of this size.

    Its inputs have the order (rows, columns, channels), and there (channels, rows,
    columns).
    """
    whole = convolution(size)

    def from_torch(x: np.ndarray) -> np.ndarray:
        return whole.from_torch(x.reshape(len(x), -1, size, size))

    def to_torch(x: np.ndarray) -> np.ndarray:
        return whole.to_torch(x).reshape(x.shape[1], -1)

    return TorchLayout(from_torch, to_torch)


class Differences(NamedTuple):
    """What of a file does not fit, by the names there; of shapes, both of them."""

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
    """What a library calls the arrays of a family of models.

    Attributes:
      layers: pattern of our path of a layer, such as `stage1_block2/conv1`, -> its name
        there, with the groups of the pattern as `{0}`, `{1}`; `{1:-1}` is one less. A
        pattern that matches the path of an array, such as `.../layer_scale/scale`,
        names the array. The first pattern that matches counts; that of the first row is
        the path of the layer that sees the image.
      layouts: pattern of our path of an array -> its layout, where it is not `USUAL`.
      unused: patterns of names there that have no counterpart here.
      older: pattern of a name that files of older versions have -> the present name,
        with the groups of the pattern as `{0}`, `{1}`.
    """

    layers: Mapping[str, str]
    layouts: Mapping[str, TorchLayout] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    older: Mapping[str, str] = field(default_factory=dict)

    @property
    def first_conv(self) -> str:
        """The layer that sees the image, there."""
        return next(iter(self.layers.values()))

    @property
    def classifier(self) -> str:
        """The layer that puts out the classes, there."""
        return self.layers["head/linear"]

    # Of a deep model all patterns take 20 ms, and there are no other instances.
    @functools.cache  # noqa: B019
    def name(self, path: str) -> str:
        """Return the name there of an array of ours, such as `head/linear/kernel`."""
        layer, _, leaf = path.rpartition("/")
        for pattern, theirs in self.layers.items():
            if match := re.fullmatch(pattern, path):
                return theirs.format(*map(_part, match.groups()))
            if match := re.fullmatch(pattern, layer):
                return f"{theirs.format(*map(_part, match.groups()))}.{LEAVES[leaf]}"
        raise AssertionError(f"{path} has no name there")

    def layout(self, path: str) -> TorchLayout:
        """Return the layout of an array of ours."""
        for pattern, layout in self.layouts.items():
            if re.fullmatch(pattern, path):
                return layout
        return USUAL

    def shapes(self, ours: Shapes) -> Shapes:
        """Return the shapes that arrays of ours have there, by their names there."""
        theirs = {
            self.name(path): self.layout(path).to_torch(np.broadcast_to(0, shape)).shape
            for path, shape in ours.items()
        }
        assert len(theirs) == len(ours)
        return theirs

    def is_unused(self, name: str) -> bool:
        """Say whether an array there has no counterpart here."""
        return any(re.fullmatch(p, name) for p in (UNUSED, *self.unused))

    def differences(self, stored: Shapes, wanted: Shapes) -> Differences:
        """Compare a file with what is wanted, both by the names there."""
        missing = [n for n in wanted if n not in stored and not self.is_unused(n)]
        unknown = [n for n in stored if n not in wanted and not self.is_unused(n)]
        misshapen = [
            f"{n}: {list(stored[n])}, expected {list(wanted[n])}"
            for n in wanted
            if n in stored and stored[n] != wanted[n]
        ]
        return Differences(missing, unknown, misshapen)

    def renamed(self, stored: Mapping[str, T]) -> Mapping[str, T]:
        """Return what a file has by its present names, but by none twice."""
        found: dict[str, T] = {}
        for name, value in stored.items():
            matches = ((re.fullmatch(p, name), now) for p, now in self.older.items())
            now = next((now.format(*m.groups()) for m, now in matches if m), name)
            found[name if now in stored else now] = value
        return found


class OwnNames(ArrayNames):
    """Our own names, with dots, and layouts; a file has all arrays and no others."""

    def name(self, path: str) -> str:  # pyright: ignore
        return path.replace("/", ".")

    def layout(self, path: str) -> TorchLayout:
        return AS_IT_IS

    def is_unused(self, name: str) -> bool:
        return False


OWN = OwnNames({})


class _Number(int):
    """The number of a layer, which other libraries may count from another one."""

    def __format__(self, offset: str) -> str:
        return str(int(self) + int(offset or 0))


def _part(group: str) -> "str | _Number":
    return _Number(group) if group.isdecimal() else group
