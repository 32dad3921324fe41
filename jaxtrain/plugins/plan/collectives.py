"""Collectives of a compiled program, and their minimum in theory.

https://openxla.org/xla/operation_semantics describes the operations.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxtrain.config import Preset

KINDS = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
)

_ARRAY = re.compile(r"\b([a-z]\w*)\[([\d,<=]*)\]")
_PAIRS = re.compile(r"source_target_pairs=\{((?:\{\d+,\d+\},?)*)\}")


@dataclass(frozen=True)
class Collective:
    """One collective operation.

    Attributes:
      kind: one of `KINDS`.
      dtype: of the payload in HLO's names, such as f32; several are joined by "+".
      bytes: the payload of one device. all-reduce, reduce-scatter, all-to-all and
        collective-permute: the operands; all-gather: the result.
      group: devices that exchange with each other, those of the first group; for a
        collective-permute, all that send or receive.
      overlapped: whether a kernel stands between its start and its end.
    """

    kind: str
    dtype: str
    bytes: int
    group: tuple[int, ...]
    overlapped: bool = False

    @property
    def wire_bytes(self) -> float:
        """Bytes that a device sends if each collective runs as a ring.

        As NCCL counts bus bandwidth (nccl-tests, PERFORMANCE.md).
        """
        if self.kind == "collective-permute":
            return self.bytes
        share = (len(self.group) - 1) / len(self.group)
        return (2 if self.kind == "all-reduce" else 1) * share * self.bytes


def summarize(collectives: Sequence[Collective]) -> dict[str, dict[str, Any]]:
    """Return `count`, sum of `bytes`, `dtypes` and the part `overlapped` of each kind.

    A kind that does not occur is left out.
    """
    return {
        kind: {
            "count": len(group),
            "bytes": (total := sum(c.bytes for c in group)),
            "dtypes": sorted({name for c in group for name in c.dtype.split("+")}),
            "overlapped": sum(c.bytes for c in group if c.overlapped) / max(1, total),
        }
        for kind in KINDS
        if (group := [c for c in collectives if c.kind == kind])
    }


def minimum_bytes(
    mesh: Mapping[str, int],
    param_bytes: int,
    preset: Preset,
    *,
    gathered: float = 1,
    summed: float = 1,
) -> int:
    """Return the least that a device must send in a step, in theory.

    Counted is what parameters and gradients need, as rings: over `fsdp` one
    reduce-scatter of gradients, and one all-gather of parameters (zero1) or two, for
    the forward and the backward pass (all others: ZeRO stage 3, arXiv:1910.02054,
    section 7); then an all-reduce, over `data` and the spatial axes, of the gradients
    that `fsdp` has left to a device. Exchanges of activations, which `model`, the
    spatial axes and batch norm over split groups need as well, are not counted: they
    have no simple minimum. A step that keeps gathered parameters for the backward pass
    gets by with one all-gather, for more memory.

    Args:
      mesh: size of each axis; one that is missing is 1.
      param_bytes: of the parameters of a device before `fsdp` shares them, which is all
        of them but for the `model` axis.
      preset: `parallel.preset`; only zero1 differs: it gathers the new parameters.
      gathered: width of what the passes gather, over that of the parameters.
      summed: width of the gradients that are sent, over that of the parameters.
    """
    fsdp = mesh.get("fsdp", 1)
    replicas = math.prod(mesh.get(a, 1) for a in ("data", "spatial", "spatial_width"))
    gathers = 1 if preset == "zero1" else 2 * gathered
    shared = (gathers + summed) * (fsdp - 1) / fsdp * param_bytes
    reduced = 2 * (replicas - 1) / replicas * summed * param_bytes / fsdp
    return round(shared + reduced)


def arrays(types: str) -> list[tuple[str, list[int]]]:
    """Return dtype and shape of all arrays in a type, such as `(f32[2,3], pred[])`."""
    return [(dtype, numbers(dims)) for dtype, dims in _ARRAY.findall(types)]


def array_bytes(found: Sequence[tuple[str, list[int]]]) -> int:
    """Return the bytes of arrays: f32 and f8e4m3fn name their bits, and pred has 8."""
    return (
        sum(math.prod(dims) * (numbers(dtype) or [8])[0] for dtype, dims in found) // 8
    )


def numbers(text: str) -> list[int]:
    """Return the numbers in a text, in which anything may stand between them."""
    return [int(n) for n in re.findall(r"\d+", text)]


def first_group(kind: str, line: str, num_devices: int) -> tuple[int, ...]:
    """Return the devices of the first group that exchange with each other.

    Raises:
      ValueError: the groups are written in a way that is not known.
    """
    if kind == "collective-permute":
        pairs = _PAIRS.search(line)
        moves = re.findall(r"(\d+),(\d+)", pairs[1] if pairs else "")
        return tuple(dict.fromkeys(int(n) for a, b in moves if a != b for n in (a, b)))
    groups = line.partition("replica_groups=")[2]
    if iota := re.match(r"\[(\d+),\d+\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", groups):
        num_groups, *order = iota.groups()
        return tuple(_ids(*order).reshape(int(num_groups), -1)[0].tolist())
    if explicit := re.match(r"\{\{([\d,]*)\}", groups):
        return tuple(numbers(explicit[1]))
    if groups.startswith("mesh["):
        return _mesh_group(groups)
    if groups.startswith("{}"):  # All devices in one group.
        return tuple(range(num_devices))
    raise ValueError(f"unknown form of replica_groups: {line.strip()}")


def _ids(sizes: str, order: str | None) -> np.ndarray:
    shape = numbers(sizes)
    ids = np.arange(math.prod(shape)).reshape(shape)
    return ids.transpose(numbers(order)) if order else ids


def _mesh_group(groups: str) -> tuple[int, ...]:
    """Return the first group along axes: `mesh['a'=2,'b'=4] {'a','b':(1)2}`.

    The last is a part of an axis: its size is 2, the size of the parts before it 1.
    """
    mesh, _, axes = groups.partition("{")
    sizes = {name: int(n) for name, n in re.findall(r"'(\w+)'=(\d+)", mesh)}
    order = re.search(r"device_ids=\(\[([\d,]+)\](?:T\(([\d,]+)\))?", mesh)
    ids = _ids(*order.groups()) if order else np.arange(math.prod(sizes.values()))
    ids = ids.reshape(*sizes.values())
    place: list[Any] = [0] * ids.ndim
    for axis, before, size in re.findall(
        r"'(\w+)'(?::\((\d+)\)(\d+))?", axes.partition("}")[0]
    ):
        whole = sizes[axis]
        # The part is one digit of the index along the axis: the others stay 0.
        step = whole // (int(before) * int(size)) if size else 1
        count = int(size) if size else whole
        place[list(sizes).index(axis)] = slice(0, step * count, step)
    return tuple(ids[tuple(place)].reshape(-1).tolist())
