"""CPU devices: of one machine JAX makes as many as it is asked for, one by default.

XLA:CPU computes many operations of a step on one thread, such as a convolution of a few
images. Devices that share a batch compute theirs at the same time, a core each.
"""

import math
import os
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import jax

from jaxtrain.config import MESH_AXES, ParallelConfig
from jaxtrain.errors import UserError, counted

# Devices that `auto` uses at most: each holds a copy of the whole state.
MOST = 8
# Pixels of a batch, for each device, from which several devices are faster than one.
PIXELS_A_DEVICE = 2**14

# Whether this module has asked for the devices that JAX has.
_offered = False


def backend_started() -> bool:
    """Whether JAX has started its backend, and so refuses another number of devices."""
    num = getattr(jax.config, "jax_num_cpu_devices")  # noqa: B009
    try:
        for value in (num + 1, num):
            jax.config.update("jax_num_cpu_devices", value)
    except RuntimeError:
        return True
    return False


def offer(asked: int | Literal["auto"]) -> None:
    """Have JAX make CPU devices for `choose`, if it has not started its backend.

    A number that the user has asked JAX for stays; several processes have one each.
    """
    global _offered
    flags = os.environ.get("XLA_FLAGS", "")
    taken = getattr(jax.config, "jax_num_cpu_devices") >= 0 or (  # noqa: B009
        "xla_force_host_platform_device_count" in flags
    )
    if backend_started():
        return
    if asked == "auto" and (taken or jax.distributed.is_initialized()):
        return
    cores = min(MOST, len(os.sched_getaffinity(0)))
    jax.config.update("jax_num_cpu_devices", cores if asked == "auto" else asked)
    _offered = True


def choose(config: ParallelConfig, sizes: Iterable[int], pixels: int) -> Sequence[Any]:
    """Return the devices of a run: all, but of the CPU devices that `offer` made.

    Of those as many that share a batch as divide it and have enough to do each.

    Args:
      config: Section of the config.
      sizes: Numbers of examples, or of groups, that devices are to share evenly.
      pixels: Pixels of a batch.

    Raises:
      UserError: `cpu_devices` asks for more than there are, or for those of a GPU.
    """
    devices, asked = jax.devices(), config.cpu_devices
    if asked != "auto":
        _check(asked, devices)
        return devices if jax.process_count() > 1 else devices[:asked]
    if not _offered or devices[0].platform != "cpu":
        return devices
    arranged = any(getattr(config, axis) is not None for axis in MESH_AXES)
    if arranged or config.preset != "data_parallel" or config.pipeline_stages > 1:
        return devices[:1]
    most, common = min(len(devices), pixels // PIXELS_A_DEVICE), math.gcd(*sizes)
    fits = [n for n in range(1, most + 1) if common % n == 0]
    return devices[: max(fits, default=1)]


def _check(asked: int, devices: Sequence[Any]) -> None:
    if devices[0].platform != "cpu":
        raise UserError(
            f"parallel.cpu_devices = {asked}: the run is on {devices[0].platform}; "
            "leave it out, or choose the CPU with --platform cpu"
        )
    if len(jax.local_devices()) < asked:
        raise UserError(
            f"parallel.cpu_devices = {asked}, but JAX has started in this process with "
            f"{counted(len(jax.local_devices()), 'CPU device')}: start a new process"
        )
