"""Trial of a batch: memory and speed, planned or measured.

Steps are measured in a separate process, which the OOM killer may kill.
"""

import contextlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax

from jaxtrain.config import Config
from jaxtrain.errors import is_out_of_memory
from jaxtrain.parallel import devices
from jaxtrain.parallel.device_memory import peak_bytes
from jaxtrain.plugins.plan import gpu_compiler
from jaxtrain.plugins.plan.measure import (
    abstract_inputs,
    bytes_per_device,
    compile_step,
    measure_steps,
)
from jaxtrain.plugins.plan.plan import Planner
from jaxtrain.plugins.plan.targets import Target
from jaxtrain.trainer.setup import build_setup

# Reasons why a batch does not fit.
TOO_LARGE = "planned or measured memory is above the limit"
RAN_OUT = "the device ran out of memory"
KILLED = "the process was killed because memory ran out"
# Linux's OOM killer ends the process with the highest score first.
OOM_SCORE, LARGEST_SCORE = Path("/proc/self/oom_score_adj"), "1000"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Result of trying a batch; bytes are per device.

    Attributes:
      batch_size: Number of examples per batch, over all devices.
      accumulate_steps: Number of micro-batches per batch.
      usable_bytes: Bytes available for a step.
      peak_bytes: Peak bytes of the step, the larger of planned and measured; 0 if
        unknown.
      fixed_bytes: Bytes of the state and a cached data set, independent of the batch.
      images_per_second: Measured throughput of all devices, or the plan's upper bound;
        None if unknown.
      reason: Reason why the batch does not fit, or "".
    """

    batch_size: int
    accumulate_steps: int
    usable_bytes: int
    peak_bytes: int = 0
    fixed_bytes: int = 0
    images_per_second: float | None = None
    reason: str = ""

    @property
    def fits(self) -> bool:
        return not self.reason

    @property
    def micro_batch_size(self) -> int:
        return self.batch_size // self.accumulate_steps

    def to_json(self) -> dict[str, Any]:
        """Return the trial's entry in find_batch.json."""
        known = {**asdict(self), "peak_bytes": self.peak_bytes or None}
        del known["usable_bytes"], known["fixed_bytes"]
        return {
            "micro_batch_size": self.micro_batch_size,
            **known,
            "fits": self.fits,
            "reason": self.reason or None,
        }


def plan_trial(planner: Planner, config: Config, memory: int | None) -> Trial:
    """Plan the memory and throughput of a config, without running steps.

    Args:
      planner: Planner of the target.
      config: Config to try.
      memory: Bytes available on each device. Defaults to the plan's `usable_bytes`.

    Raises:
      UserError: The config is incompatible with the data or the devices.
    """
    plan = planner.plan(config)
    usable = plan.usable_bytes if memory is None else memory
    return Trial(
        batch_size=config.data.batch_size,
        accumulate_steps=config.train.accumulate_steps,
        usable_bytes=usable,
        peak_bytes=plan.peak_bytes,
        fixed_bytes=plan.fixed_bytes,
        images_per_second=plan.images_per_second,
        reason=TOO_LARGE if plan.peak_bytes > usable else "",
    )


def run_trial(target: Target, config: Config, usable: int) -> Trial:
    """Try a config by running a few steps on the devices of this machine.

    Args:
      target: Target with the devices to use.
      config: Config to try.
      usable: Bytes per device available for a step.

    Raises:
      UserError: The config is incompatible with the data or the devices.
    """
    found: dict[str, Any]
    try:
        found = gpu_compiler.call(target, try_steps, config, usable)
    except gpu_compiler.KilledError:
        found = {"reason": KILLED}
    return Trial(
        batch_size=config.data.batch_size,
        accumulate_steps=config.train.accumulate_steps,
        usable_bytes=usable,
        **found,
    )


def try_steps(config: Config, usable: int) -> dict[str, Any]:
    """Run a few steps, and return the fields of a `Trial`.

    Must be called in a separate process, which the OOM killer may kill. Steps whose
    planned memory is above `usable` bytes per device are not run.
    """
    with contextlib.suppress(OSError):
        OOM_SCORE.write_text(LARGEST_SCORE, encoding="utf-8")
    devices.start("auto", flags=config.parallel.xla_flags)
    setup = build_setup(config)
    fixed = setup.abstract_state, abstract_inputs(setup)[0], setup.method_arrays
    found: dict[str, Any] = {"fixed_bytes": bytes_per_device(fixed)}
    try:
        program = compile_step(setup)
        found["peak_bytes"] = peak_bytes(program)
        if found["peak_bytes"] <= usable:
            measured = measure_steps(setup, program)
            peak = int(measured["peak_bytes"])
            found["peak_bytes"] = max(found["peak_bytes"], peak)
            speed = config.data.batch_size / measured["step_seconds"]
            found["images_per_second"] = speed
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return {**found, "reason": RAN_OUT}
    too_large = found["peak_bytes"] > usable
    return {**found, "reason": TOO_LARGE if too_large else ""}
