"""What NVML measures of the GPUs of this process: load, memory, power, temperature."""

import contextlib
import os
from collections.abc import Sequence
from typing import Any

import pynvml


class GpuSensors:
    """Reads the sensors of some GPUs; what NVML does not tell is left out.

    Args:
      ordinals: Numbers of the GPUs among those that CUDA sees.
      visible: Value of CUDA_VISIBLE_DEVICES; None: CUDA sees all of them.
      nvml: Module with the functions of `pynvml`.
    """

    def __init__(
        self, ordinals: Sequence[int], visible: str | None = None, nvml: Any = pynvml
    ):
        self._nvml, self._handles = nvml, list[Any]()
        if not ordinals:
            return
        # Without a driver, in a container that hides it, of a GPU that fell off.
        with contextlib.suppress(nvml.NVMLError, IndexError):
            nvml.nvmlInit()
            self._handles = [self._handle(number, visible) for number in ordinals]

    def read(self) -> list[dict[str, float]]:
        """Return the figures of each GPU.

        Returns:
          `gpu_utilization` (share of the last fraction of a second in which a kernel
          ran), `gpu_memory_bytes` (of all processes), `gpu_power_watts` and
          `gpu_temperature` (degrees Celsius).
        """
        return [self._read(handle) for handle in self._handles]

    def _handle(self, ordinal: int, visible: str | None) -> Any:
        if visible is None:
            return self._nvml.nvmlDeviceGetHandleByIndex(ordinal)
        name = visible.split(",")[ordinal].strip()
        if name.isdecimal():
            return self._nvml.nvmlDeviceGetHandleByIndex(int(name))
        return self._nvml.nvmlDeviceGetHandleByUUID(name)

    def _read(self, handle: Any) -> dict[str, float]:
        nvml, found = self._nvml, dict[str, float]()
        # A virtual GPU has no power meter, a part of one (MIG) no utilization.
        with contextlib.suppress(nvml.NVMLError):
            rates = nvml.nvmlDeviceGetUtilizationRates(handle)
            found["gpu_utilization"] = rates.gpu / 100
        with contextlib.suppress(nvml.NVMLError):
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            found["gpu_memory_bytes"] = memory.used
        with contextlib.suppress(nvml.NVMLError):
            found["gpu_power_watts"] = nvml.nvmlDeviceGetPowerUsage(handle) / 1000
        with contextlib.suppress(nvml.NVMLError):
            kind = nvml.NVML_TEMPERATURE_GPU
            degrees = nvml.nvmlDeviceGetTemperature(handle, kind)
            found["gpu_temperature"] = degrees
        return found


def of_devices(devices: Sequence[Any]) -> GpuSensors:
    """Return the sensors of those devices of JAX that are NVIDIA GPUs."""
    gpus = [device for device in devices if device.platform == "gpu"]
    ordinals = [gpu.local_hardware_id for gpu in gpus]
    return GpuSensors(ordinals, os.environ.get("CUDA_VISIBLE_DEVICES"))
