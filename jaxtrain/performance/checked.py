"""A plan beside what a few steps take on the devices of this machine."""

import ctypes
import re
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
    devices.start("auto")
    settled = settle(config)
    setup = build_setup(settled.config, trained=settled.trained)
    program = compile_step(setup)
    state, key, data, batches = create_inputs(setup)
    # The first call allocates what later ones keep, such as threads.
    state, metrics = program(state, key, data, batches)
    jax.block_until_ready((state, metrics))
    held = bytes_per_device((state, data, batches))
    before = _forget_peak()
    start = time.perf_counter()
    for _ in range(STEPS):
        # One at a time: a step that waits for another would hold memory, too.
        state, metrics = program(state, key, data, batches)
        jax.block_until_ready((state, metrics))
    seconds = (time.perf_counter() - start) / STEPS
    return {
        "peak_bytes": _peak_bytes(held, before),
        "planned_bytes": peak_bytes(program),
        "step_seconds": seconds,
    }


def _forget_peak() -> int:
    """Let the largest size of this process count from now on; return its size.

    On Linux (proc(5)), once what has been freed went back to the system.
    """
    ctypes.CDLL(None).malloc_trim(0)
    CLEAR.write_text("5")
    return _status("VmRSS")


def _peak_bytes(held: int, before: int) -> float:
    """Return the most that a device held.

    GPUs count it. On a CPU it is what the process grew by in a step, `before` being its
    size, and what a device held between the steps.
    """
    if jax.default_backend() != "cpu":
        return max(d.memory_stats()["peak_bytes_in_use"] for d in jax.local_devices())
    return held + (_status("VmHWM") - before) / jax.device_count()


def _status(name: str) -> int:
    match = re.search(rf"{name}:\s+(\d+) kB", STATUS.read_text())
    return int(match[1]) * 1024 if match else 0
