"""What devices exchange in a compiled program, and what they must in theory.

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
    def group_size(self) -> int:
        return len(self.group)

    @property
    def wire_bytes(self) -> float:
        """What a device sends if each collective runs as a ring.

        As NCCL counts bus bandwidth (nccl-tests, PERFORMANCE.md).
        """
        if self.kind == "collective-permute":
            return self.bytes
        share = (self.group_size - 1) / self.group_size
        return (2 if self.kind == "all-reduce" else 1) * share * self.bytes


def read_collective(
    operation: str, result: str, line: str, num_devices: int
) -> Collective:
    """Read one collective, whose group may be a single device.

    Args:
      operation: Kind of the collective; that of an asynchronous one ends in -start.
      result: Type of its result, as HLO writes it.
      line: Whole line of the program.
      num_devices: Number of devices of the program.

    Raises:
      ValueError: the groups are written in a way that is not known.
    """
    kind = operation.removesuffix("-start")
    is_start, group = kind != operation, _group(kind, line, num_devices)
    # The start of an all-reduce has the type of its result, the others (operands,
    # result, ...).
    if is_start and kind != "all-reduce":
        result = _elements(result)[1 if kind == "all-gather" else 0]
    num_bytes = array_bytes(result)
    if kind == "reduce-scatter" and not is_start:
        num_bytes *= len(group)  # The text tells the result; operands are larger.
    dtypes = dict.fromkeys(dtype for dtype, _ in arrays(result))
    return Collective(kind, "+".join(dtypes), num_bytes, group)


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
    return [
        (dtype, [int(n.lstrip("<=")) for n in dims.split(",") if n])
        for dtype, dims in _ARRAY.findall(types)
    ]


def array_bytes(types: str) -> int:
    """Return the bytes of all arrays in a type."""
    return sum(math.prod(dims) * _bits(dtype) for dtype, dims in arrays(types)) // 8


def _bits(dtype: str) -> int:
    """Return the width that the name of a dtype tells, as in f32 or f8e4m3fn."""
    width = re.search(r"\d+", dtype)
    return int(width[0]) if width else 8  # pred


def _elements(tuple_type: str) -> list[str]:
    """Split `(a, (b, c), d)` into `a`, `(b, c)` and `d`."""
    parts, depth = [""], 0
    for char in tuple_type.strip()[1:-1]:
        depth += (char in "({[") - (char in ")}]")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts


def _group(kind: str, line: str, num_devices: int) -> tuple[int, ...]:
    """Return the devices of the first group that exchange with each other."""
    if kind == "collective-permute":
        pairs = _PAIRS.search(line)
        moves = re.findall(r"(\d+),(\d+)", pairs[1] if pairs else "")
        return tuple(dict.fromkeys(int(n) for a, b in moves if a != b for n in (a, b)))
    groups = line.partition("replica_groups=")[2]
    if iota := re.match(r"\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", groups):
        ids = _ids(iota[3], iota[4]).reshape(int(iota[1]), int(iota[2]))
        return tuple(ids[0].tolist())
    if explicit := re.match(r"\{\{([\d,]*)\}", groups):
        return tuple(int(n) for n in explicit[1].split(","))
    if groups.startswith("mesh["):
        return _mesh_group(groups)
    if groups.startswith("{}"):  # All devices in one group.
        return tuple(range(num_devices))
    raise ValueError(f"unknown form of replica_groups: {line.strip()}")


def _ids(sizes: str, order: str | None) -> np.ndarray:
    """Return the devices, in the order that `[2,4]T(1,0)` gives them."""
    shape = [int(n) for n in sizes.split(",")]
    ids = np.arange(math.prod(shape)).reshape(shape)
    return ids.transpose([int(n) for n in order.split(",")]) if order else ids


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
