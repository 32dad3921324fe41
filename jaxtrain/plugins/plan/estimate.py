"""Estimate of a run's duration on this machine, by timing a few steps."""

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from subprocess import TimeoutExpired

import jax
import numpy as np

from jaxtrain.config import Config, replace as change
from jaxtrain.data.datasets import should_cache
from jaxtrain.data.sources import Source
from jaxtrain.errors import UserError
from jaxtrain.parallel import devices
from jaxtrain.plugins.plan import gpu_compiler
from jaxtrain.plugins.plan.measure import (
    TIMED_SECONDS,
    abstract_inputs,
    compile_step,
    create_method_arrays,
    time_step,
)
from jaxtrain.plugins.plan.targets import HERE, Target
from jaxtrain.trainer.setup import Setup, build_setup

# Time limit of the estimate in seconds, including compilation.
LIMIT_SECONDS = 60.0
# Maximum batch size per device of steps timed on CPU. Larger batches change the time
# per example by at most 5 % (docs/decisions.md).
CPU_BATCH = 8
# Maximum number of images read to time the input pipeline.
NUM_READ = 32
# Minimum duration, in seconds, of runs for which faster options are suggested.
LONG_SECONDS = 600.0
# Smallest suggested image size.
SMALLEST_SIZE = 48
# A change is suggested if the run then takes less than this fraction of the time.
FASTER_PART = 0.9
# Assumed time of a forward pass relative to a training step.
EVALUATION_PART = 1 / 3


@dataclass(frozen=True)
class Estimate:
    """Estimated duration of a run on this machine.

    Attributes:
      device: Description of the devices, with the number of CPU cores.
      step_seconds: Seconds per training step, with data loading.
      epoch_seconds: Seconds of an epoch, including its evaluation.
      epochs: Length of the run in epochs.
      compile_seconds: Seconds to compile the step.
      faster: Suggested command-line options -> seconds of a run with these options.
    """

    device: str
    step_seconds: float
    epoch_seconds: float
    epochs: float
    compile_seconds: float
    faster: Mapping[str, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return self.compile_seconds + self.epochs * self.epoch_seconds


def roughly(seconds: float) -> str:
    """Format a duration: 8 s, 12 min, 1 h 30 min, 3 days."""
    if seconds < 1:
        return "less than 1 s"
    if seconds < 90:
        return f"{round(seconds)} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    if minutes < 24 * 60:
        hours, rest = divmod(10 * round(minutes / 10), 60)
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    hours = round(minutes / 60)
    return f"{hours} h" if hours < 72 else f"{hours / 24:.0f} days"


def changes(config: Config) -> dict[str, Config]:
    """Return candidates for a faster run: command-line option -> changed config."""
    found: dict[str, Config] = {}
    if config.model.pretrained is None and hasattr(config.model, "width"):
        found["--model.width 0.5"] = change(config, "model.width", 0.5)
    size = config.data.image_size or 0
    for part in (1 / 2, 3 / 4):
        smaller = int(size * part) // 16 * 16
        if smaller >= SMALLEST_SIZE:
            words = f"--data.image-size {smaller}"
            found[words] = change(config, "data.image_size", smaller)
    return found


def estimate(config: Config, limit_seconds: float = LIMIT_SECONDS) -> Estimate | str:
    """Estimate a run's duration on this machine, or return an error message.

    Steps are timed in separate processes, which release the devices and can be killed.
    Suggested changes are timed too, because XLA is slower for some small image sizes
    than for larger sizes.

    Args:
      config: Config of the run, with `train.epochs` set.
      limit_seconds: Time limit in seconds for the estimate and the suggestions.
    """
    end = time.monotonic() + limit_seconds

    def measure(config: Config) -> Estimate:
        here, left = Target(name=HERE, num_devices=None), end - time.monotonic()
        return gpu_compiler.call(here, measure_here, config, timeout=max(0.0, left))

    try:
        found = measure(config)
    except TimeoutExpired:
        return f"a step was not compiled and timed within {limit_seconds:g} s"
    except (UserError, RuntimeError) as error:
        return str(error).partition("\n")[0]
    if found.seconds < LONG_SECONDS:
        return found
    fewer = max(1, round(found.epochs / 3))
    faster = {f"--train.epochs {fewer}": replace(found, epochs=fewer).seconds}
    for words, changed in changes(config).items():
        # The model may not support the change, or the time limit may be reached.
        with contextlib.suppress(UserError, RuntimeError, TimeoutExpired):
            seconds = measure(changed).seconds
            if seconds < FASTER_PART * found.seconds:
                faster[words] = seconds
    return replace(found, faster=faster)


def measure_here(config: Config) -> Estimate:
    """Measure the time of training steps and of image reading in this process.

    Raises:
      UserError: The config is incompatible with the data or the devices, or XLA fails.
    """
    assert config.train.epochs is not None
    devices.start("auto")
    on_cpu, batch_size = jax.default_backend() == "cpu", config.data.batch_size
    if on_cpu:
        batch_size = min(batch_size, CPU_BATCH * jax.device_count())
    try:
        setup = build_setup(change(config, "data.batch_size", batch_size))
        start = time.perf_counter()
        program = compile_step(setup)
        compile_seconds = time.perf_counter() - start
        image_seconds = _time_step(setup, program) / batch_size
    except jax.errors.JaxRuntimeError as error:
        raise UserError(str(error).partition("\n")[0]) from None
    splits, read_seconds = setup.splits, 0.0
    if not should_cache(setup.config.data, splits):
        read_seconds = _time_reading(splits.train)
    # On a CPU, data loading and the step alternate; with a GPU, they overlap.
    both = (image_seconds, read_seconds)
    seconds = sum(both) if on_cpu else max(both)
    num_validation = len(splits.validation or ())
    num_examples = setup.timetable.num_examples + EVALUATION_PART * num_validation
    return Estimate(
        device=f"{jax.device_count()} x {jax.devices()[0].device_kind}, "
        f"{len(os.sched_getaffinity(0))} CPU cores",
        step_seconds=seconds * config.data.batch_size,
        epoch_seconds=seconds * num_examples,
        epochs=config.train.epochs,
        compile_seconds=compile_seconds,
    )


def _time_step(setup: Setup, program: jax.stages.Compiled) -> float:
    """Return the seconds of a training step on zeros.

    Zeros take as long as real data, and are created without compiling a program.
    """
    state, data, batches = jax.tree.map(
        lambda x: jax.device_put(np.zeros(x.shape, x.dtype), x.format),
        (setup.abstract_state, *abstract_inputs(setup)),
    )
    root, method_arrays = jax.random.key(0), create_method_arrays(setup)
    return time_step(program, state, root, data, batches, **method_arrays)


def _time_reading(source: Source) -> float:
    """Return the seconds to read a training image, with all cores in parallel."""
    num = min(NUM_READ, len(source))
    indices = np.arange(num) * len(source) // num
    start, done = time.perf_counter(), 0
    for index in indices:
        seeds = np.array([[index]]) if source.canvas_shape else None
        source.read(np.array([index]), seeds, unreadable=[])
        done += 1
        if time.perf_counter() - start > TIMED_SECONDS:
            break
    elapsed = time.perf_counter() - start
    return elapsed / done / len(os.sched_getaffinity(0))
