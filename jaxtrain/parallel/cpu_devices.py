"""Number of JAX's CPU devices, which determines over how many cores a batch is sharded.

On a single CPU device, XLA runs many operations, such as a convolution of few images,
in a single thread. Several devices run in parallel, on one core each.
"""

import math
import os
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import jax

from jaxtrain.config import MESH_AXES, ParallelConfig
from jaxtrain.errors import UserError, counted

# Maximum number of devices for `auto`, as each device stores the full training state.
MAX_DEVICES = 8
# Minimum number of pixels per device; with fewer, several devices are not faster.
PIXELS_A_DEVICE = 2**14

# Whether `offer` has configured the number of JAX's CPU devices.
_offered = False


def backend_started() -> bool:
    """Whether JAX has started its backend, which fixes the number of devices."""
    num = getattr(jax.config, "jax_num_cpu_devices")  # noqa: B009
    try:
        for value in (num + 1, num):
            jax.config.update("jax_num_cpu_devices", value)
    except RuntimeError:
        return True
    return False


def offer(requested: int | Literal["auto"]) -> None:
    """Configure the number of JAX's CPU devices, unless its backend has started.

    `auto` requests a device per core, up to `MAX_DEVICES`, but changes nothing if the
    user has configured the number in JAX, or if there are several processes.
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
    """Return the devices that a run uses.

    With `cpu_devices = auto`, a run on accelerators uses all devices, and so does a run
    on CPUs if `offer` has not configured their number. Otherwise, a data-parallel run
    uses the largest number that divides all `sizes`, with at least `PIXELS_A_DEVICE`
    pixels per device; other runs use one device.

    Args:
      config: Section `parallel` of the config.
      sizes: Numbers of examples, or of batch-norm groups, that the number of devices
        must divide.
      pixels: Number of pixels in a batch.

    Raises:
      UserError: `cpu_devices` exceeds the number of devices, or is set although the run
        is on an accelerator.
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
