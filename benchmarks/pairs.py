"""Two things run in turn, what their times say of each other, and how it is told.

Each script prints one JSON object last: `name`, `ratio` (ours over the peer, above 1 is
better), `ours`, `peer`, `unit`, `spread` (the quartiles of the ratio), `device` and
`versions`, and what else it has found.
"""

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax

from jaxtrain.trainer.records import versions

# The seconds of a turn, by the clock and of the CPU.
Seconds = tuple[float, float]
CPU_INFO = Path("/proc/cpuinfo")


def timed(function: Callable[[], Any]) -> Seconds:
    """Call a function, which waits for its results; return what it took."""
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - wall, time.process_time() - cpu


def timed_process(command: list[str]) -> tuple[Seconds, str]:
    """Run a command to its end; return what its process took, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        print(done.stdout, file=sys.stderr)
        raise SystemExit(done.returncode)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return (wall, cpu), done.stdout


def take_turns(
    runs: list[Callable[[], Seconds]], num: int
) -> tuple[list[Seconds], ...]:
    """Run some functions one after the other, `num` times; return the times of each."""
    rounds = [[run() for run in runs] for _ in range(num)]
    return tuple(map(list, zip(*rounds, strict=True)))


def compare(
    ours: list[Seconds], peer: list[Seconds], amount: float, unit: str = "images/s"
) -> dict[str, Any]:
    """Return our speed over the peer's: of each pair, as that of the machine drifts.

    Args:
      ours: Seconds of our turns.
      peer: Seconds of the peer's turns, each after one of ours.
      amount: Work of a turn, such as a number of images.
      unit: Unit of the speeds, that amount a second.
    """
    pairs = list(zip(ours, peer, strict=True))
    ratios = sorted(theirs[0] / our[0] for our, theirs in pairs)
    return {
        "ratio": statistics.median(ratios),
        "spread": quartiles(ratios),
        "ratio_of_cpu_time": statistics.median(p[1] / o[1] for o, p in pairs),
        "ours": amount / statistics.median(wall for wall, _ in ours),
        "peer": amount / statistics.median(wall for wall, _ in peer),
        "unit": unit,
        "pairs": len(pairs),
    }


def relate(
    ours: list[float], peer: list[float], unit: str, *, more_is_better: bool = False
) -> dict[str, Any]:
    """Return the ratio of two quantities, of each pair, above 1 where ours is better.

    Args:
      ours: Our values, one a turn.
      peer: Values of what ours are held to, one a turn.
      unit: Unit of both.
      more_is_better: Whether the larger value is the better one.
    """
    pairs = zip(ours, peer, strict=True)
    ratios = [a / b if more_is_better else b / a for a, b in pairs]
    return {
        "ratio": statistics.median(ratios),
        "spread": quartiles(ratios),
        "ours": statistics.median(ours),
        "peer": statistics.median(peer),
        "unit": unit,
        "pairs": len(ratios),
    }


def quartiles(values: list[float]) -> list[float]:
    """Return the values a quarter of the way from either end."""
    values, quarter = sorted(values), len(values) // 4
    return [values[quarter], values[-1 - quarter]]


def describe_device() -> str:
    """Return the number and the name of the devices, or of the cores and processor."""
    if jax.default_backend() != "cpu":
        return f"{jax.device_count()} x {jax.devices()[0].device_kind}"
    lines = CPU_INFO.read_text().splitlines() if CPU_INFO.exists() else []
    names = [line.partition(": ")[2] for line in lines if "model name" in line]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{len(os.sched_getaffinity(0))} x {name}"


def tell(
    name: str,
    found: dict[str, Any],
    *,
    device: str | None = None,
    libraries: dict[str, str] | None = None,
) -> None:
    """Print the result of a script as one line of JSON.

    Args:
      name: Name of the script.
      found: Ratio, our number, the peer's, unit and spread, and what else there is.
      device: Machine that was measured. Defaults to `describe_device()`.
      libraries: Versions of the libraries that only the peer needs.
    """
    device = describe_device() if device is None else device
    told = {"name": name, **found, "device": device}
    print(json.dumps({**told, "versions": {**versions(), **(libraries or {})}}))


def tell_each(name: str, rows: Iterable[tuple[str, dict[str, Any]]]) -> None:
    """Print each row as it comes, and last the first one again, with all of them.

    What was found stays if a later row fails.

    Args:
      name: Name of the script.
      rows: Labels and what was found; at least one.
    """
    results: dict[str, dict[str, Any]] = {}
    for label, found in rows:
        results[label] = found
        tell(f"{name}: {label}", found)
        sys.stdout.flush()
    tell(name, {**next(iter(results.values())), "results": results})
