"""Labels of channels, to find the channels that can only be removed together.

Each index along each dim of an array has a label. The outputs of an operation inherit
the labels of its inputs. Labels that an operation, such as a sum, combines become
equivalent: their channels can only be removed together. A concatenated dim has labels
of several arrays; the dim of a flattened feature map has repeated labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

# STAYS is the label of indices that cannot be removed, such as pixel rows of images.
# ANY is the label of indices of uniform arrays, which match any channel.
STAYS, ANY = 0, -1


@dataclass(frozen=True, eq=False)
class Labelled:
    """Labels of an array.

    Attributes:
      dims: Labels of each dim, int64 (size,).
      of_images: Whether the array depends on the images.
    """

    dims: tuple[np.ndarray, ...]
    of_images: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(map(len, self.dims))


@dataclass(frozen=True, eq=False)
class LabelledProduct:
    """Labels of a convolution or matrix product, seen as nested loops.

    Attributes:
      dims: Labels of each loop, one label per iteration.
      factor: FLOPs of one iteration of the innermost loop.
      divisor: Divisor of the FLOPs, for inputs dilated with zeros.
      layer: Path of the layer, or None outside layers.
    """

    dims: tuple[np.ndarray, ...]
    factor: int
    divisor: int
    layer: str | None

    def flops(self, stays: np.ndarray) -> int:
        """Return the FLOPs for the retained labels; `stays` is bool (labels,)."""
        total = self.factor
        for labels in self.dims:
            total *= int(stays[labels].sum())
        return total // self.divisor


class LabelClasses:
    """Equivalence classes of labels.

    Attributes:
      num: Number of labels.
      reasons: Pairs (labels, reason) for labels that cannot be removed.
      makers: Labels of each kernel's output channels, in order of computation.
      taken: Labels of each kernel's input channels.
      products: Convolutions and matrix products.
    """

    def __init__(self) -> None:
        self.num = 1
        self.reasons: list[tuple[np.ndarray, str]] = []
        self.makers: list[np.ndarray] = []
        self.taken: list[np.ndarray] = []
        self.products: list[LabelledProduct] = []
        self._pairs: list[tuple[np.ndarray, np.ndarray]] = []

    def new(self, size: int) -> np.ndarray:
        """Return `size` new labels."""
        self.num += size
        return np.arange(self.num - size, self.num)

    def join(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Make labels `a` and `b` equivalent; return `a`, or `b` where `a` is ANY."""
        self._pairs.append((a, b))
        stays = ((a == STAYS) & (b > STAYS)) | ((b == STAYS) & (a > STAYS))
        self.pin(
            np.maximum(a, b)[stays],
            "its channels are combined with dims that are not channels",
        )
        return np.where(a == ANY, b, a)

    def pin(self, labels: np.ndarray, reason: str) -> None:
        """Mark labels as not removable, and record the reason."""
        labels = np.unique(labels[labels > STAYS])
        if labels.size:
            self.reasons.append((labels, reason))

    def components(self) -> np.ndarray:
        """Return the index of each label's equivalence class, int (num,)."""
        a, b = (np.concatenate([pair[i] for pair in self._pairs]) for i in (0, 1))
        met = (a > STAYS) & (b > STAYS) & (a != b)
        ones, shape = np.ones(int(met.sum()), bool), (self.num, self.num)
        graph = coo_array((ones, (a[met], b[met])), shape)
        return connected_components(graph, directed=False)[1]


def fixed(size: int) -> np.ndarray:
    """Return labels of a dim whose indices cannot be removed, (size,)."""
    return np.full(size, STAYS)


def copies(size: int) -> np.ndarray:
    """Return labels of a dim along which all values are equal, (size,)."""
    return np.full(size, ANY)


def reshape(
    dims: Sequence[np.ndarray], shape: Sequence[int]
) -> tuple[tuple[np.ndarray, ...], list[np.ndarray]]:
    """Return the labels of a reshaped array, and the labels that cannot be tracked.

    If a channel dim is merged with other dims, its labels are repeated. If a channel
    dim is split, its labels cannot be tracked.
    """
    lost = [labels for labels in dims if len(labels) == 1]
    given = [labels for labels in dims if len(labels) != 1]
    wanted = [size for size in shape if size != 1]
    found: list[np.ndarray] = []
    while given:
        ins, outs = [given.pop(0)], [wanted.pop(0)]
        while (sizes := (_size(ins), int(np.prod(outs))))[0] != sizes[1]:
            if sizes[0] < sizes[1]:
                ins.append(given.pop(0))
            else:
                outs.append(wanted.pop(0))
        made = _reshape_joined(ins, outs)
        if made is None:
            lost += ins
            made = [fixed(size) for size in outs]
        found += made
    rest = iter(found)
    return tuple(fixed(1) if n == 1 else next(rest) for n in shape), lost


def _reshape_joined(
    ins: Sequence[np.ndarray], outs: Sequence[int]
) -> list[np.ndarray] | None:
    """Return the labels after a reshape of dims, or None if they cannot be tracked.

    Args:
      ins: Labels of each input dim.
      outs: Size of each output dim.
    """
    if len(ins) == len(outs) == 1:
        return [ins[0]]
    varied = [i for i, labels in enumerate(ins) if (labels > STAYS).any()]
    if not varied:
        alike = copies if all((x == ANY).all() for x in ins) else fixed
        return [alike(size) for size in outs]
    if len(varied) > 1:
        return None
    shape = [len(labels) for labels in ins]
    along = [-1 if i == varied[0] else 1 for i in range(len(ins))]
    grid = np.broadcast_to(ins[varied[0]].reshape(along), shape).reshape(outs)
    for dim, size in enumerate(outs):
        line = np.moveaxis(grid, dim, -1).reshape(-1, size)
        if (line == line[0]).all():
            return [line[0] if d == dim else fixed(n) for d, n in enumerate(outs)]
    return None


def _size(dims: Sequence[np.ndarray]) -> int:
    return int(np.prod([len(labels) for labels in dims]))
