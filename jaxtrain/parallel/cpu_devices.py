"""Number of JAX's CPU devices: one by default, more to shard a batch over cores.

XLA:CPU runs many operations of a step on one thread, such as a convolution of a few
images. Devices that shard a batch run in parallel, on one core each.
"""

import math
import os
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import jax

from jaxtrain.config import MESH_AXES, ParallelConfig
from jaxtrain.errors import UserError, counted

# Maximum number of devices of `auto`, as each stores a copy of the full state.
MAX_DEVICES = 8
# Smallest number of pixels per device for which several devices are faster than one.
PIXELS_A_DEVICE = 2**14

# Whether this module has configured the number of JAX's CPU devices.
_offered = False


def backend_started() -> bool:
    """Whether JAX has started its backend, after which the device count is fixed."""
    num = getattr(jax.config, "jax_num_cpu_devices")  # noqa: B009
    try:
        for value in (num + 1, num):
            jax.config.update("jax_num_cpu_devices", value)
    except RuntimeError:
        return True
    return False


def offer(requested: int | Literal["auto"]) -> None:
    """Configure the number of JAX's CPU devices for `choose`, unless JAX has started.

    `auto` keeps a number that the user has configured in JAX, and one device per
    process in runs of several processes.
    """
    global _offered
    flags = os.environ.get("XLA_FLAGS", "")
    taken = getattr(jax.config, "jax_num_cpu_devices") >= 0 or (  # noqa: B009
        "xla_force_host_platform_device_count" in flags
    )
    if backend_started():
        return
    if requested == "auto" and (taken or jax.distributed.is_initialized()):
        return
    cores = min(MAX_DEVICES, len(os.sched_getaffinity(0)))
    jax.config.update(
        "jax_num_cpu_devices", cores if requested == "auto" else requested
    )
    _offered = True


def choose(config: ParallelConfig, sizes: Iterable[int], pixels: int) -> Sequence[Any]:
    """Return the devices of a run.

    All devices are used on accelerators, or if `offer` has not configured CPU devices.
    Otherwise a data-parallel run uses the largest number of devices that divides the
    batch evenly, with at least `PIXELS_A_DEVICE` pixels per device; other runs use one.

    Args:
      config: Section of the config.
      sizes: Numbers of examples, or of batch-norm groups, that the number of devices
        must divide.
      pixels: Number of pixels of a batch.

    Raises:
      UserError: `cpu_devices` exceeds the number of devices, or the run is on an
        accelerator.
    """
    devices, requested = jax.devices(), config.cpu_devices
    if requested != "auto":
        _check(requested, devices)
        return devices if jax.process_count() > 1 else devices[:requested]
    if not _offered or devices[0].platform != "cpu":
        return devices
    arranged = any(getattr(config, axis) is not None for axis in MESH_AXES)
    if arranged or config.preset != "data_parallel" or config.pipeline_stages > 1:
        return devices[:1]
    most, common = min(len(devices), pixels // PIXELS_A_DEVICE), math.gcd(*sizes)
    fits = [n for n in range(1, most + 1) if common % n == 0]
    return devices[: max(fits, default=1)]


def _check(requested: int, devices: Sequence[Any]) -> None:
    if devices[0].platform != "cpu":
        raise UserError(
            f"parallel.cpu_devices = {requested} has no effect on "
            f"{devices[0].platform}: leave parallel.cpu_devices out, or give "
            "--platform cpu"
        )
    if len(jax.local_devices()) < requested:
        raise UserError(
            f"parallel.cpu_devices = {requested}: JAX is already initialized in this "
            f"process with {counted(len(jax.local_devices()), 'CPU device')}; start a "
            "new process"
        )
