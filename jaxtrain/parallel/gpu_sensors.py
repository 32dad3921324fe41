"""GPU telemetry from NVML: utilization, memory, power and temperature."""

import contextlib
import os
from collections.abc import Sequence
from typing import Any

import pynvml


class GpuSensors:
    """Reader of GPU sensors, which omits readings that NVML does not support.

    Args:
      ordinals: CUDA ordinals of the GPUs, which count only visible GPUs.
      visible: Value of CUDA_VISIBLE_DEVICES. None means that all GPUs are visible.
      nvml: Module `pynvml`, or a replacement in tests.
    """

    def __init__(
        self, ordinals: Sequence[int], visible: str | None = None, nvml: Any = pynvml
    ):
        self._nvml, self._handles = nvml, list[Any]()
        if not ordinals:
            return
        # NVML fails without a driver, in containers without access to it, and if a GPU
        # has failed.
        with contextlib.suppress(nvml.NVMLError, IndexError):
            nvml.nvmlInit()
            self._handles = [self._handle(number, visible) for number in ordinals]

    def read(self) -> list[dict[str, float]]:
        """Return the readings of each GPU, by name.

        Returns:
          `gpu_utilization` (fraction of time in which a kernel ran, over NVML's last
          sampling period of up to a second), `gpu_memory_bytes` (memory in use by all
          processes), `gpu_power_watts`, and `gpu_temperature` (degrees Celsius).
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
        nvml, readings = self._nvml, dict[str, float]()
        # Virtual GPUs do not report power, and MIG instances do not report utilization.
        with contextlib.suppress(nvml.NVMLError):
            rates = nvml.nvmlDeviceGetUtilizationRates(handle)
            readings["gpu_utilization"] = rates.gpu / 100
        with contextlib.suppress(nvml.NVMLError):
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            readings["gpu_memory_bytes"] = memory.used
        with contextlib.suppress(nvml.NVMLError):
            readings["gpu_power_watts"] = nvml.nvmlDeviceGetPowerUsage(handle) / 1000
        with contextlib.suppress(nvml.NVMLError):
            kind = nvml.NVML_TEMPERATURE_GPU
            degrees = nvml.nvmlDeviceGetTemperature(handle, kind)
            readings["gpu_temperature"] = degrees
        return readings


def sensors_of(devices: Sequence[Any]) -> GpuSensors:
    """Return the sensors of the GPUs among JAX devices."""
    gpus = [device for device in devices if device.platform == "gpu"]
    ordinals = [gpu.local_hardware_id for gpu in gpus]
    return GpuSensors(ordinals, os.environ.get("CUDA_VISIBLE_DEVICES"))
