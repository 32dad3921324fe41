"""A plan beside what a few steps take on the devices of this machine."""

import ctypes
import re
import time
from pathlib import Path

import jax

from jaxtrain.config import Config
from jaxtrain.parallel import devices
from jaxtrain.performance.measure import compile_step, create_inputs, peak_bytes
from jaxtrain.run.settle import settle
from jaxtrain.run.setup import build_setup

STEPS = 10
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def check(config: Config) -> dict[str, float]:
    """Run a few steps on noise; return what they took of a device.

    To be called in a process of its own, which has allocated nothing yet.

    Returns:
      `peak_bytes`, `step_seconds`, and `planned_bytes` of the same program.
    """
    devices.start("auto")
    settled = settle(config)
    setup = build_setup(settled.config, trained=settled.trained)
    program = compile_step(setup)
    before = _resident_bytes()
    state, key, data, batches = create_inputs(setup)
    # The first call may allocate what later ones keep.
    state, metrics = program(state, key, data, batches)
    jax.block_until_ready((state, metrics))
    _forget_peak()
    start = time.perf_counter()
    for _ in range(STEPS):
        state, metrics = program(state, key, data, batches)
    jax.block_until_ready((state, metrics))
    seconds = (time.perf_counter() - start) / STEPS
    return {
        "peak_bytes": _peak_bytes(before),
        "planned_bytes": peak_bytes(program),
        "step_seconds": seconds,
    }


def _resident_bytes() -> int:
    """Return what this process holds, once what it has freed went back."""
    ctypes.CDLL(None).malloc_trim(0)
    return _status("VmRSS")


def _forget_peak() -> None:
    """Let the largest size of this process count from now on (Linux, proc(5))."""
    ctypes.CDLL(None).malloc_trim(0)
    CLEAR.write_text("5")


def _peak_bytes(before: int) -> float:
    """Return the most that a device held: as its driver counts, or the process grew."""
    if jax.default_backend() != "cpu":
        return max(d.memory_stats()["peak_bytes_in_use"] for d in jax.local_devices())
    return (_status("VmHWM") - before) / jax.device_count()


def _status(name: str) -> int:
    match = re.search(rf"{name}:\s+(\d+) kB", STATUS.read_text())
    return int(match[1]) * 1024 if match else 0
