"""Machine metrics of a log line: utilization, memory, power, data wait.

The training loop samples them for each log line, without a thread. Process 0 uses the
metrics of other processes from their last evaluation or save.
"""

import multiprocessing
import time
from collections.abc import Callable, Sequence
from statistics import fmean

import jax
import psutil

from jaxtrain.parallel import gpu_sensors
from jaxtrain.parallel.gpu_sensors import GpuSensors
from jaxtrain.parallel.gpus import peak_flops
from jaxtrain.trainer.run_state import RunState, Telemetry
from jaxtrain.trainer.trainer import Trainer

# Reduction of each metric over GPUs or processes.
COMBINED: dict[str, Callable[[Sequence[float]], float]] = {
    "gpu_utilization": fmean,
    "gpu_memory_bytes": max,
    "gpu_peak_bytes": max,
    "gpu_power_watts": sum,
    "gpu_temperature": max,
    "host_cpu_cores": sum,
    "host_memory_bytes": sum,
}


class MachineSampler:
    """Sampler of the machine metrics of this process and its GPUs.

    Args:
      run: State of the run to log.
      sensors: GPU sensors. Defaults to the sensors of this process's GPUs.
      seconds: Function that returns the current time in seconds.
    """

    def __init__(
        self,
        run: RunState,
        sensors: GpuSensors | None = None,
        seconds: Callable[[], float] = time.perf_counter,
    ):
        self._run, self._devices = run, jax.local_devices()
        self._sensors = sensors or gpu_sensors.sensors_of(self._devices)
        self._seconds = seconds
        self._waited, self._stepped = self._loop_seconds()
        self._at, self._cpu_seconds = seconds(), host_seconds()[0]

    def sample(self, step: int, examples_per_second: float) -> Telemetry:
        """Sample metrics; process 0 returns the metrics of all processes, others {}.

        Args:
          step: Any step since the last log line.
          examples_per_second: Throughput since the last log line.
        """
        own = combine([*self._sensors.read(), *self._memory(), self._host()])
        telemetry = self._run.telemetry
        telemetry[jax.process_index()] = own
        if jax.process_index() != 0:
            return {}
        found = {"data_wait": self._data_wait()}
        mfu = flop_utilization(self._run.trainer, step, examples_per_second)
        if mfu is not None:
            found = {"mfu": mfu, **found}
        return found | combine([*telemetry.values()])

    def _data_wait(self) -> float:
        """Fraction of time spent waiting for batches since the last sample."""
        before = self._waited, self._stepped
        self._waited, self._stepped = self._loop_seconds()
        waited, stepped = self._waited - before[0], self._stepped - before[1]
        return waited / (waited + stepped) if waited > 0 else 0.0

    def _loop_seconds(self) -> tuple[float, float]:
        seconds = self._run.clock.seconds()
        return seconds["data_wait"], seconds["step"]

    def _memory(self) -> list[Telemetry]:
        """Peak bytes in use per GPU, as reported by JAX's allocator."""
        stats = [device.memory_stats() or {} for device in self._devices]
        peaks = [found.get("peak_bytes_in_use") for found in stats]
        return [{"gpu_peak_bytes": peak} for peak in peaks if peak is not None]

    def _host(self) -> Telemetry:
        cpu_seconds, memory = host_seconds()
        now, used = self._seconds(), cpu_seconds - self._cpu_seconds
        elapsed, self._at, self._cpu_seconds = now - self._at, now, cpu_seconds
        # `used` is negative if a data worker ended, as `cpu_seconds` excludes ended
        # workers.
        cores = max(0.0, used) / max(elapsed, 1e-9)
        return {"host_cpu_cores": cores, "host_memory_bytes": memory}


def combine(samples: Sequence[Telemetry]) -> Telemetry:
    """Reduce samples to one value per metric (see `COMBINED`)."""
    found = {name: [s[name] for s in samples if name in s] for name in COMBINED}
    return {name: COMBINED[name](every) for name, every in found.items() if every}


def flop_utilization(
    trainer: Trainer, step: int, examples_per_second: float
) -> float | None:
    """Model FLOPs utilization (MFU): FLOP/s of the steps over the devices' peak FLOP/s.

    None if the peak is unknown, as on CPU, or the step is not compiled.

    Args:
      trainer: Trainer with the programs of the steps.
      step: Any step of the measured period.
      examples_per_second: Throughput of the measured period.
    """
    products = trainer.policy.product_dtype
    kinds = [device.device_kind for device in trainer.mesh.devices.flat]
    peaks = [peak_flops(kind, products) or 0.0 for kind in kinds]
    flops = trainer.programs.train_at(step).flops_a_step() if all(peaks) else None
    if flops is None:
        return None
    return flops * examples_per_second / trainer.timetable.batch_size / sum(peaks)


def host_seconds() -> tuple[float, int]:
    """CPU time (s) and resident memory (bytes) of this process and its workers."""
    processes = [psutil.Process()]
    seconds, memory = 0.0, 0
    for child in multiprocessing.active_children():
        try:
            processes.append(psutil.Process(child.pid))
        except psutil.Error:
            continue  # The worker has just ended.
    for process in processes:
        try:
            times = process.cpu_times()
            memory += process.memory_info().rss
        except psutil.Error:
            continue
        seconds += times.user + times.system
    return seconds, memory
