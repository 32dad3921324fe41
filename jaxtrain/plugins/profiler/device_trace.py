"""What a profiler's trace tells of the instructions that the devices ran."""

import heapq
import itertools
import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from jax.profiler import ProfileData

# The stats of an event that XLA writes.
OP, MODULE, PROGRAM = "hlo_op", "hlo_module", "program_id"
# On a CPU what an instruction leaves to other threads ends in an event of theirs, with
# the number of the event that began it.
_BEGINS, _ENDS = "_p", "_c"


@dataclass(frozen=True)
class DeviceOp:
    """An instruction, or a copy, that a device ran once. Times are in nanoseconds.

    Attributes:
      device: Name of the device, unique in the trace.
      program: Name and number of the program that it is of; "" for a copy of none.
      instruction: Name of the instruction; "" for a copy.
      start: Time at which it began.
      end: Time at which the thread, or the stream, that began it went on.
      done: Time at which other threads of a CPU had done their parts, too.
    """

    device: str
    program: str
    instruction: str
    start: float
    end: float
    done: float


class Span(NamedTuple):
    """A time that somebody may have: those of the lowest rank at a moment share it."""

    start: float
    end: float
    rank: int
    owner: Hashable


def read_trace(folder: Path) -> list[DeviceOp]:
    """Return what the devices ran, of the newest trace in a folder.

    Raises:
      OSError: There is no trace.
    """
    paths = sorted(folder.glob("*.xplane.pb"), key=lambda path: path.stat().st_mtime)
    if not paths:
        raise FileNotFoundError(f"no trace in {folder}")
    return device_ops(ProfileData.from_file(str(paths[-1])))


def device_ops(data: Any) -> list[DeviceOp]:
    """Return what the devices ran: GPUs, or the CPU where there are none."""
    planes = list(data.planes)
    gpus = [plane for plane in planes if plane.name.startswith("/device:GPU")]
    if gpus:
        return [op for plane in gpus for op in _of_gpu(plane)]
    return [op for plane in planes for op in _of_cpu(plane.lines)]


def _of_gpu(plane: Any) -> Iterator[DeviceOp]:
    """Yield kernels and copies: each stream has a line, other lines sum them up."""
    for line in plane.lines:
        if line.name.startswith("Stream"):
            for event in line.events:
                yield _op(event, dict(event.stats), plane.name)


def _of_cpu(lines: Iterable[Any]) -> Iterator[DeviceOp]:
    begun: dict[Any, DeviceOp] = {}
    done: dict[Any, float] = {}
    for line in lines:
        for event in line.events:
            stats = dict(event.stats)
            if OP in stats:
                device = f"CPU {stats.get('device_ordinal', 0)}"
                number = stats.get(_BEGINS, f"alone {len(begun)}")
                begun[number] = _op(event, stats, device)
            elif _ENDS in stats:
                done[stats[_ENDS]] = event.start_ns
    for number, op in begun.items():
        yield replace(op, done=max(op.end, done.get(number, op.end)))


def _op(event: Any, stats: dict[str, Any], device: str) -> DeviceOp:
    # Within a loop a GPU's trace has the instructions around it, too.
    names = re.split(r"::|/", str(stats.get(OP, "")))
    program = f"{stats[MODULE]} {stats.get(PROGRAM, '')}" if MODULE in stats else ""
    end = event.start_ns + event.duration_ns
    return DeviceOp(device, program, names[-1], event.start_ns, end, end)


def divide_time(spans: Sequence[Span]) -> dict[Any, float]:
    """Return the time of each owner, which add up to the time that any span covers."""
    times: defaultdict[Any, float] = defaultdict(float)
    waiting = sorted(spans, key=lambda span: span.start)
    moments = sorted({moment for span in spans for moment in span[:2]})
    active: dict[int, list[tuple[float, int]]] = {}
    place = 0
    for now, then in itertools.pairwise(moments):
        while place < len(waiting) and waiting[place].start <= now:
            span = waiting[place]
            heapq.heappush(active.setdefault(span.rank, []), (span.end, place))
            place += 1
        for rank in sorted(active):
            ends = active[rank]
            while ends and ends[0][0] <= now:
                heapq.heappop(ends)
            if ends:
                for _, one in ends:
                    times[waiting[one].owner] += (then - now) / len(ends)
                break
    return times
