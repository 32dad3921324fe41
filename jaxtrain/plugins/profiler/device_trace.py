"""Reading of a profiler trace: the instructions that devices executed."""

import heapq
import itertools
import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from jax.profiler import ProfileData

# Keys of the statistics that XLA attaches to trace events.
OP, MODULE, PROGRAM = "hlo_op", "hlo_module", "program_id"
# On CPU, an instruction may continue on other threads. The event at its start stores an
# id as _p, and the event at its end stores the same id as _c.
_BEGINS, _ENDS = "_p", "_c"


@dataclass(frozen=True)
class DeviceOp:
    """One execution of an instruction or copy on a device. Times are in nanoseconds.

    Attributes:
      device: Name of the device, unique in the trace.
      program: Name and id of the program; "" for a copy outside of programs.
      instruction: Name of the instruction; "" for a copy.
      start: Start time of the execution.
      end: End time on the thread or stream that started the instruction or copy.
      done: End time over all threads; later than `end` if an instruction continues on
        other CPU threads.
    """

    device: str
    program: str
    instruction: str
    start: float
    end: float
    done: float


class Span(NamedTuple):
    """Time interval in nanoseconds that counts for an owner, such as a layer.

    If spans overlap, the overlap counts only for the spans of the lowest rank.
    """

    start: float
    end: float
    rank: int
    owner: Hashable


def read_trace(folder: Path) -> list[DeviceOp]:
    """Read the instructions of the newest trace in a directory.

    Raises:
      OSError: There is no trace.
    """
    paths = sorted(folder.glob("*.xplane.pb"), key=lambda path: path.stat().st_mtime)
    if not paths:
        raise FileNotFoundError(f"no trace in {folder}")
    return device_ops(ProfileData.from_file(str(paths[-1])))


def device_ops(data: Any) -> list[DeviceOp]:
    """Return the instructions of all GPUs; without GPUs, of all CPU devices."""
    planes = list(data.planes)
    gpus = [plane for plane in planes if plane.name.startswith("/device:GPU")]
    if gpus:
        return [op for plane in gpus for op in _of_gpu(plane)]
    return [op for plane in planes for op in _of_cpu(plane.lines)]


def _of_gpu(plane: Any) -> Iterator[DeviceOp]:
    """Yield the kernels and copies in the `Stream` lines of a GPU's trace."""
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
    # GPU traces prefix an instruction inside a loop with the enclosing instructions.
    names = re.split(r"::|/", str(stats.get(OP, "")))
    program = f"{stats[MODULE]} {stats.get(PROGRAM, '')}" if MODULE in stats else ""
    end = event.start_ns + event.duration_ns
    return DeviceOp(device, program, names[-1], event.start_ns, end, end)


def divide_time(spans: Sequence[Span]) -> dict[Any, float]:
    """Divide the time that spans cover among their owners.

    An overlap is divided equally among the overlapping spans of the lowest rank.

    Returns:
      Owner -> time in nanoseconds.
    """
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
