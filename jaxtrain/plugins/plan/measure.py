"""Compilation and timing of a config's training step on this process's devices.

No data are read: the step is compiled for abstract shapes, and timed on noise.
"""

import contextlib
import ctypes
import math
import re
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxtrain import keys
from jaxtrain.config import Config
from jaxtrain.data.batch_specs import eval_spec, train_spec
from jaxtrain.data.datasets import should_cache
from jaxtrain.errors import UserError, counted, is_out_of_memory
from jaxtrain.evaluation.evaluate import eval_batch_size
from jaxtrain.parallel import data_sharding, devices
from jaxtrain.parallel.device_memory import peak_bytes
from jaxtrain.trainer.programs import Programs, make_programs
from jaxtrain.trainer.run_data import load_data
from jaxtrain.trainer.setup import Setup, build_setup
from jaxtrain.training.compiled import Compiled
from jaxtrain.training.state import TrainState

# Minimum total duration of the timed calls in seconds.
TIMED_SECONDS = 2.0
# Calls per timed block on a GPU, where calls are dispatched asynchronously.
CALLS_A_BLOCK = 5
# Number of steps whose memory is measured.
WATCHED_STEPS = 3
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def compile_step(setup: Setup) -> jax.stages.Compiled:
    """Compile the training step of a setup (see `lower_step`).

    Returns:
      Compiled `(state, root_key, data, batches, **method_arrays) -> (state, metrics)`,
      for the shapes and shardings of `setup.abstract_state`, `abstract_inputs(setup)`
      and `setup.method_arrays`.
    """
    return lower_step(setup).compile()


def lower_step(setup: Setup) -> jax.stages.Lowered:
    """Lower the training step of a run without allocating arrays.

    The program runs one step per call, with all layers unfrozen. Normalization uses
    placeholders for a mean and standard deviation that a run would compute from data.

    Raises:
      UserError: A step consists of several programs, as in pipelines.
    """
    setup.execution.check_measurable()
    programs = _programs(setup)
    everywhere = data_sharding.replicated(setup.mesh)
    key = jax.eval_shape(lambda: keys.root_key(0))
    key = jax.ShapeDtypeStruct(key.shape, key.dtype, sharding=everywhere)
    *_, (_, train) = programs.train
    assert isinstance(train, Compiled)
    return train.lower(
        setup.abstract_state, key, *abstract_inputs(setup), **setup.method_arrays
    )


def compile_evaluation(setup: Setup) -> jax.stages.Compiled:
    """Compile the evaluation step of a setup, `Programs.eval`, for streamed data."""
    programs, state = _programs(setup), setup.abstract_state
    mesh, size = setup.mesh, eval_batch_size(setup.config.data)
    rows = data_sharding.batch_sharding(mesh)
    batches = eval_spec(setup.splits.test).batch(1, size, sharding=rows)
    assert isinstance(programs.eval, Compiled)
    weights = state.params, state.model_state
    return programs.eval.lower(weights, {}, batches).compile()


def _programs(setup: Setup) -> Programs:
    """Create the programs of a run for streamed data, without loading data."""
    changed: dict[str, Any] = {"cache": "stream"}
    if setup.config.data.mean is None:
        some = (0.5,) * setup.splits.train.image_shape[-1]
        changed |= {"mean": some, "std": some}
    config = replace(setup.config, data=replace(setup.config.data, **changed))
    streamed = replace(setup, config=config, method_inputs=None)
    return make_programs(streamed, load_data(streamed))


def abstract_inputs(setup: Setup) -> tuple[Any, Any]:
    """Return the shapes and shardings of `data` and `batches` for one step."""
    mesh, config, splits = setup.mesh, setup.config.data, setup.splits
    spec, rows = train_spec(config, splits.train), data_sharding.batch_sharding(mesh)
    on_device = should_cache(config, splits)
    batches = spec.batch(1, config.batch_size, sharding=rows, on_device=on_device)
    if not on_device:
        return {}, batches
    num_examples = sum(map(len, splits.named().values()))
    return spec.stored(num_examples, sharding=data_sharding.replicated(mesh)), batches


def bytes_per_device(tree: Any) -> int:
    """Return the bytes per device of a pytree of abstract arrays with shardings."""
    return sum(
        math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize
        for x in jax.tree.leaves(tree)
    )


def create_inputs(setup: Setup) -> tuple[TrainState, jax.Array, Any, Any]:
    """Create the inputs of a step on the devices: initial state, and noise as data."""
    rng = np.random.default_rng(0)
    train = setup.splits.train
    bounds = {"image": 256, "index": len(train), "repeat": 1, "epoch": 2}
    example = train_spec(setup.config.data, train).example

    def fill(name: str, abstract: Any) -> Any:
        # Repeat the values of one example: random targets or boxes could be invalid.
        if name not in bounds:
            return jax.tree.map(put, abstract, example[name])
        noise = rng.integers(bounds[name], size=abstract.shape, dtype=abstract.dtype)
        return put(abstract, noise)

    def put(x: jax.ShapeDtypeStruct, value: np.ndarray) -> jax.Array:
        return jax.device_put(np.broadcast_to(value, x.shape), x.format)

    data, batches = (
        {name: fill(name, x) for name, x in inputs.items()}
        for inputs in abstract_inputs(setup)
    )
    everywhere = data_sharding.replicated(setup.mesh)
    key = jax.device_put(keys.root_key(setup.config.seed), everywhere)
    state = jax.jit(setup.create, out_shardings=setup.state_formats)(key)
    return state, key, data, batches


@contextlib.contextmanager
def enough_memory(config: Config) -> Iterator[None]:
    """Context manager: raise UserError if the devices run out of memory."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise UserError(
            f"data.batch_size = {config.data.batch_size} does not fit in the memory of "
            f"{counted(jax.device_count(), 'device')}: use a smaller batch size, or "
            "more devices"
        ) from None


def create_method_arrays(setup: Setup) -> dict[str, Any]:
    """Create the method inputs of a step on the devices, filled with zeros."""
    return jax.tree.map(
        lambda x: jax.device_put(np.zeros(x.shape, x.dtype), x.format),
        setup.method_arrays,
    )


def time_step(
    program: jax.stages.Compiled, state: TrainState, *inputs: Any, **method_arrays: Any
) -> float:
    """Return the seconds of a step: the median over blocks of consecutive calls.

    At least three blocks are timed, and the first is discarded as warm-up. On a CPU, a
    block is one call.
    """
    num_calls = 1 if jax.default_backend() == "cpu" else CALLS_A_BLOCK
    seconds: list[float] = []
    while len(seconds) < 3 or sum(seconds) * num_calls < TIMED_SECONDS:
        start = time.perf_counter()
        for _ in range(num_calls):
            state, _ = program(state, *inputs, **method_arrays)
        jax.block_until_ready(state)
        seconds.append((time.perf_counter() - start) / num_calls)
    return statistics.median(seconds[1:])


def run_steps(config: Config) -> dict[str, float]:
    """Compile and measure the step of a config (see `measure_steps`).

    Must be called in a separate process, without earlier allocations.

    Raises:
      UserError: The config is incompatible with the data or the devices, or the devices
        have too little memory.
    """
    devices.start("auto", flags=config.parallel.xla_flags)
    with enough_memory(config):
        setup = build_setup(config)
        return measure_steps(setup, compile_step(setup))


def measure_steps(setup: Setup, program: jax.stages.Compiled) -> dict[str, float]:
    """Run a few steps on noise, and measure memory per device and time per step.

    Returns:
      `peak_bytes`, the measured peak per device; `planned_bytes`, the peak planned by
      the compiler; and `step_seconds`.
    """
    state, *inputs = create_inputs(setup)
    box, method_arrays = [state], create_method_arrays(setup)

    def step() -> None:
        box[0], metrics = program(box[0], *inputs, **method_arrays)
        jax.block_until_ready((box[0], metrics))

    peak = watched_bytes(step, bytes_per_device((state, inputs[1:], method_arrays)))
    return {
        "peak_bytes": peak,
        "planned_bytes": peak_bytes(program),
        "step_seconds": time_step(program, box[0], *inputs, **method_arrays),
    }


def watched_bytes(step: Callable[[], None], held: int) -> float:
    """Run a few steps, and return their peak bytes per device.

    Args:
      step: Function that runs one step, and waits for its results.
      held: Bytes per device of the arrays that exist between steps.
    """
    # The first call also makes permanent allocations, such as for threads.
    step()
    grown = 0
    for _ in range(WATCHED_STEPS):
        # Return freed memory to the system, because malloc may not reuse fragments.
        ctypes.CDLL(None).malloc_trim(0)
        # Reset the peak RSS, VmHWM (proc(5)).
        CLEAR.write_text("5", encoding="utf-8")
        before = _status("VmRSS")
        step()
        grown = max(grown, _status("VmHWM") - before)
    if jax.default_backend() != "cpu":
        stats = [device.memory_stats() for device in jax.local_devices()]
        return max(counts["peak_bytes_in_use"] for counts in stats)
    # CPU devices have no memory statistics, so the growth of the process's RSS is
    # divided by the number of devices.
    return held + grown / jax.device_count()


def _status(name: str) -> int:
    match = re.search(rf"{name}:\s+(\d+) kB", STATUS.read_text(encoding="utf-8"))
    return int(match[1]) * 1024 if match else 0
