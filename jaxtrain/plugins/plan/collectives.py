"""Collectives of a compiled program, and a lower bound on the bytes sent.

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
      kind: Operation, one of `KINDS`.
      dtype: HLO dtype of the payload, such as f32; several dtypes are joined by "+".
      bytes: Payload of one device: the result of an all-gather, the operands of other
        operations.
      group: Devices of the first replica group; for a collective-permute, all devices
        that send or receive.
      overlapped: Whether a kernel runs between the start and the end of the collective.
    """

    kind: str
    dtype: str
    bytes: int
    group: tuple[int, ...]
    overlapped: bool = False

    @property
    def wire_bytes(self) -> float:
        """Bytes sent by a device, assuming ring collectives.

        NCCL's bus bandwidth counts the same bytes (nccl-tests, PERFORMANCE.md).
        """
        if self.kind == "collective-permute":
            return self.bytes
        share = (len(self.group) - 1) / len(self.group)
        return (2 if self.kind == "all-reduce" else 1) * share * self.bytes


def summarize(collectives: Sequence[Collective]) -> dict[str, dict[str, Any]]:
    """Return kind -> count, total bytes, dtypes and overlapped fraction of bytes.

    Kinds that do not occur are omitted.
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
    """Return a lower bound on the bytes that a device sends in a step.

    Counts the ring collectives of parameters and gradients. Over the axis `fsdp`, the
    gradients need one reduce-scatter. The parameters need one all-gather with zero1,
    and two with other presets (forward and backward pass, as in ZeRO stage 3,
    arXiv:1910.02054, section 7). An all-reduce of the device's gradient shard over
    `data` and the spatial axes follows. Exchanges of activations are excluded, as they
    have no simple lower bound. A step that keeps gathered parameters for the backward
    pass needs one all-gather less, but more memory.

    Args:
      mesh: Size of each axis; missing axes have size 1.
      param_bytes: Bytes of parameters per device, sharded over the `model` axis but not
        over `fsdp`.
      preset: Value of `parallel.preset`; zero1 gathers the new parameters.
      gathered: Item size of the all-gathered dtype relative to the parameter dtype.
      summed: Item size of the gradient dtype relative to the parameter dtype.
    """
    fsdp = mesh.get("fsdp", 1)
    replicas = math.prod(mesh.get(a, 1) for a in ("data", "spatial", "spatial_width"))
    gathers = 1 if preset == "zero1" else 2 * gathered
    shared = (gathers + summed) * (fsdp - 1) / fsdp * param_bytes
    reduced = 2 * (replicas - 1) / replicas * summed * param_bytes / fsdp
    return round(shared + reduced)


def arrays(types: str) -> list[tuple[str, list[int]]]:
    """Parse (dtype, shape) of all arrays in an HLO type, e.g. `(f32[2,3], pred[])`."""
    return [(dtype, numbers(dims)) for dtype, dims in _ARRAY.findall(types)]


def array_bytes(found: Sequence[tuple[str, list[int]]]) -> int:
    """Return the total bytes of arrays given as (HLO dtype, shape)."""
    return (
        sum(math.prod(dims) * (numbers(dtype) or [8])[0] for dtype, dims in found) // 8
    )


def numbers(text: str) -> list[int]:
    """Return all integers in a text."""
    return [int(n) for n in re.findall(r"\d+", text)]


def first_group(kind: str, line: str, num_devices: int) -> tuple[int, ...]:
    """Return the device ids of the first replica group of a collective.

    Args:
      kind: Operation, one of `KINDS`.
      line: HLO line of the collective.
      num_devices: Number of devices of the program.

    Raises:
      ValueError: The notation of the groups is unknown.
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
    if groups.startswith("{}"):  # Empty groups mean all devices in one group.
        return tuple(range(num_devices))
    raise ValueError(f"unknown form of replica_groups: {line.strip()}")


def _ids(sizes: str, order: str | None) -> np.ndarray:
    shape = numbers(sizes)
    ids = np.arange(math.prod(shape)).reshape(shape)
    return ids.transpose(numbers(order)) if order else ids


def _mesh_group(groups: str) -> tuple[int, ...]:
    """Return the first replica group of `mesh['a'=2,'b'=4] {'a','b':(1)2}`.

    `'b':(1)2` is the sub-axis of `b` with size 2, after sub-axes of total size 1.
    """
    mesh, _, axes = groups.partition("{")
    sizes = {name: int(n) for name, n in re.findall(r"'(\w+)'=(\d+)", mesh)}
    order = re.search(r"device_ids=\(\[([\d,]+)\](?:T\(([\d,]+)\))?", mesh)
    ids = _ids(*order.groups()) if order else np.arange(math.prod(sizes.values()))
    ids = ids.reshape(*sizes.values())
    index: list[Any] = [0] * ids.ndim
    for axis, before, size in re.findall(
        r"'(\w+)'(?::\((\d+)\)(\d+))?", axes.partition("}")[0]
    ):
        full = sizes[axis]
        # A sub-axis is one digit of the mixed-radix index along its mesh axis. The
        # first group has 0 in all other digits.
        step = full // (int(before) * int(size)) if size else 1
        count = int(size) if size else full
        index[list(sizes).index(axis)] = slice(0, step * count, step)
    return tuple(ids[tuple(index)].reshape(-1).tolist())
