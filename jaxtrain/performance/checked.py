"""A plan beside what a few steps take on the devices of this machine."""

import ctypes
import re
import statistics
import time
from pathlib import Path

import jax

from jaxtrain.config import Config
from jaxtrain.parallel import devices
from jaxtrain.performance.measure import (
    bytes_per_device,
    compile_step,
    create_inputs,
    peak_bytes,
)
from jaxtrain.run.settle import settle
from jaxtrain.run.setup import build_setup

STEPS = 3
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def check(config: Config) -> dict[str, float]:
    """Run a few steps on noise; return what they took of a device.

    To be called in a process of its own, which has allocated nothing yet.

    Returns:
      `peak_bytes`, `step_seconds`, and `planned_bytes` of the same program.
    """
    devices.start("auto", flags=config.parallel.xla_flags)
    settled = settle(config)
    setup = build_setup(settled.config, trained=settled.trained)
    program = compile_step(setup)
    state, key, data, batches = create_inputs(setup)
    # The first call allocates what later ones keep, such as threads.
    state, metrics = program(state, key, data, batches)
    jax.block_until_ready((state, metrics))
    held = bytes_per_device((state, data, batches))
    grown, seconds = 0, []
    for _ in range(STEPS):
        # What has been freed goes back first: the C library may not fill its holes.
        before, start = _forget_peak(), time.perf_counter()
        state, metrics = program(state, key, data, batches)
        jax.block_until_ready((state, metrics))
        seconds.append(time.perf_counter() - start)
        grown = max(grown, _status("VmHWM") - before)
    return {
        "peak_bytes": _peak_bytes(held, grown),
        "planned_bytes": peak_bytes(program),
        "step_seconds": statistics.median(seconds),
    }


def _forget_peak() -> int:
    """Let the largest size of this process count from now on; return its size.

    On Linux (proc(5)).
    """
    ctypes.CDLL(None).malloc_trim(0)
    CLEAR.write_text("5")
    return _status("VmRSS")


def _peak_bytes(held: int, grown: int) -> float:
    """Return the most that a device held.

    GPUs count it. On a CPU it is what a device held between the steps, and what the
    process grew by in one of them.
    """
    if jax.default_backend() != "cpu":
        return max(d.memory_stats()["peak_bytes_in_use"] for d in jax.local_devices())
    return held + grown / jax.device_count()


def _status(name: str) -> int:
    match = re.search(rf"{name}:\s+(\d+) kB", STATUS.read_text())
    return int(match[1]) * 1024 if match else 0
