"""The training step of a config on the devices of this process: compiled, and timed.

No data are read: the step is compiled from shapes alone, and timed on noise.
"""

import math
import statistics
import time
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from jaxtrain import keys
from jaxtrain.config import Config
from jaxtrain.data import loader
from jaxtrain.data.batch import train_spec
from jaxtrain.errors import UserError, counted
from jaxtrain.parallel import devices, sharding
from jaxtrain.performance import collectives
from jaxtrain.run.programs import make_programs
from jaxtrain.run.settle import settle
from jaxtrain.run.setup import Setup, build_setup
from jaxtrain.training.compiled import Compiled
from jaxtrain.training.state import TrainState

WARM_UP_CALLS = 3
CALLS_A_BLOCK = 5
TIMED_SECONDS = 3.0


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What a step takes; bytes are those of one device.

    Attributes:
      devices: their number.
      batch_size: of all devices.
      step_seconds: of one step, the median over blocks of calls; None if not timed.
      state_bytes: of parameters, optimizer state and all else that a step hands on.
      peak_bytes: of all that is alive at once, as the compiler plans it.
      collectives: count and bytes of each kind (see `collectives.summarize`).
      wire_bytes: what is sent for them, if they run as rings.
      minimum_bytes: what must be sent in theory (see `collectives.minimum_bytes`).
    """

    devices: int
    batch_size: int
    step_seconds: float | None
    state_bytes: int
    peak_bytes: int
    collectives: dict[str, dict[str, Any]]
    wire_bytes: int
    minimum_bytes: int

    @property
    def images_per_second(self) -> float | None:
        return self.step_seconds and self.batch_size / self.step_seconds


def measure(config: Config, platform: devices.Platform, *, timed: bool) -> Measurement:
    """Compile one step of `config` for all devices of this process, and maybe time it.

    Raises:
      UserError: config, data and devices do not fit.
    """
    devices.start(platform)
    try:
        settled = settle(config)
        setup = build_setup(settled.config, trained=settled.trained)
        return _measure(setup, timed=timed)
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise UserError(
            f"data.batch_size = {config.data.batch_size} needs more memory than "
            f"{counted(jax.device_count(), 'device')} can hold: use a smaller one, "
            "or more devices"
        ) from None


def _measure(setup: Setup, *, timed: bool) -> Measurement:
    program = compile_step(setup)
    found = collectives.list_collectives(program.as_text() or "")
    return Measurement(
        devices=jax.device_count(),
        batch_size=setup.timetable.batch_size,
        step_seconds=_time(setup, program) if timed else None,
        state_bytes=bytes_per_device(setup.abstract_state),
        peak_bytes=peak_bytes(program),
        collectives=collectives.summarize(found),
        wire_bytes=collectives.wire_bytes(found),
        minimum_bytes=minimum_bytes(setup),
    )


def compile_step(setup: Setup) -> jax.stages.Compiled:
    """Compile the step that a run of `setup` takes, and allocate nothing.

    It is the program of one step a call (`train.steps_per_call` of 1), once all layers
    are trained that ever are. Where the config does not give the images' mean and
    standard deviation, which a run would compute from the data, other constants stand
    in their place.

    Returns:
      The program of `(state, root_key, data, batches) -> (state, metrics)`, for the
      shapes and shardings of `setup.abstract_state` and `abstract_inputs(setup)`.

    Raises:
      UserError: the setup has pipeline stages.
    """
    step, arguments = _step(setup)
    return step.compile(*arguments)


def lower_step(setup: Setup) -> jax.stages.Lowered:
    """Return that step as XLA would be given it (see `compile_step`)."""
    step, arguments = _step(setup)
    return step.lower(*arguments)


def _step(setup: Setup) -> tuple[Compiled, tuple[Any, ...]]:
    """Return the step, and its arguments without values."""
    if setup.stages is not None:
        raise UserError(
            f"parallel.pipeline_stages = {len(setup.stages.stages)}: a pipelined step "
            "is many programs, of which none can be measured alone; leave it out"
        )
    # With streamed data `make_programs` loads none.
    changed: dict[str, Any] = {"cache": "stream"}
    if setup.config.data.mean is None:
        some = (0.5,) * setup.splits.train.image_shape[-1]
        changed |= {"mean": some, "std": some}
    config = replace(setup.config, data=replace(setup.config.data, **changed))
    programs = make_programs(replace(setup, config=config))
    data, batches = abstract_inputs(setup)
    everywhere = sharding.replicated(setup.mesh)
    key = jax.eval_shape(lambda: keys.root_key(0))
    key = jax.ShapeDtypeStruct(key.shape, key.dtype, sharding=everywhere)
    *_, (_, train) = programs.train
    assert isinstance(train, Compiled)
    return train, (setup.abstract_state, key, data, batches)


def abstract_inputs(setup: Setup) -> tuple[Any, Any]:
    """Return shapes and shardings of the `data` and `batches` of one step."""
    mesh, config, splits = setup.mesh, setup.config.data, setup.splits
    spec, rows = train_spec(config, splits.train), sharding.batch_sharding(mesh)
    on_device = loader.should_cache(config, splits)
    batches = spec.batch(1, config.batch_size, sharding=rows, on_device=on_device)
    if not on_device:
        return {}, batches
    num_examples = sum(map(len, splits.named().values()))
    return spec.stored(num_examples, sharding=sharding.replicated(mesh)), batches


def bytes_per_device(tree: Any) -> int:
    """Return the bytes that a device holds of arrays with shardings, as in a Setup."""
    return sum(
        math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize
        for x in jax.tree.leaves(tree)
    )


def peak_bytes(program: jax.stages.Compiled) -> int:
    """Return the bytes that a program needs on each device, arguments included."""
    plan: Any = program.memory_analysis()
    return (
        plan.argument_size_in_bytes
        + plan.output_size_in_bytes
        + plan.temp_size_in_bytes
        - plan.alias_size_in_bytes
    )


def minimum_bytes(setup: Setup) -> int:
    """Return what a device must send in theory (`collectives.minimum_bytes`)."""
    # As the `model` axis alone splits them.
    shardings = replace(setup.layout, shard_params=False).state(setup.abstract_state)
    params = jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
        setup.abstract_state.params,
        shardings.params,
    )
    copies, width = setup.layout.copies, np.dtype(setup.policy.param_dtype).itemsize
    widths = {}
    if copies is not None:
        widths["gathered"] = np.dtype(copies.dtype).itemsize / width
        widths["summed"] = np.dtype(copies.sum_dtype).itemsize / width
    return collectives.minimum_bytes(
        setup.mesh.shape,
        bytes_per_device(params),
        setup.config.parallel.preset,
        **widths,
    )


def create_inputs(setup: Setup) -> tuple[TrainState, jax.Array, Any, Any]:
    """Return what one step takes, on the devices: a new state, and noise for data."""
    rng = np.random.default_rng(0)
    train = setup.splits.train
    bounds = {"image": 256, "index": len(train), "repeat": 1, "epoch": 2}
    example = train_spec(setup.config.data, train).example

    def fill(name: str, abstract: Any) -> Any:
        # Random targets, or boxes, may be out of range.
        if name not in bounds:
            return jax.tree.map(put, abstract, example[name])
        noise = rng.integers(bounds[name], size=abstract.shape, dtype=abstract.dtype)
        return put(abstract, noise)

    def put(x: jax.ShapeDtypeStruct, value: np.ndarray) -> jax.Array:
        return jax.device_put(np.broadcast_to(value, x.shape), x.sharding)

    data, batches = (
        {name: fill(name, x) for name, x in inputs.items()}
        for inputs in abstract_inputs(setup)
    )
    everywhere = sharding.replicated(setup.mesh)
    key = jax.device_put(keys.root_key(setup.config.seed), everywhere)
    state = jax.jit(setup.create, out_shardings=setup.state_shardings)(key)
    return state, key, data, batches


def _time(setup: Setup, program: jax.stages.Compiled) -> float:
    """Return the seconds of a step: calls in a row on one batch of noise."""
    state, key, data, batches = create_inputs(setup)

    def block(state: TrainState, num_calls: int) -> tuple[TrainState, float]:
        start = time.perf_counter()
        for _ in range(num_calls):
            state, _ = program(state, key, data, batches)
        jax.block_until_ready(state)
        return state, (time.perf_counter() - start) / num_calls

    state, _ = block(state, WARM_UP_CALLS)
    seconds = []
    while sum(seconds) * CALLS_A_BLOCK < TIMED_SECONDS:
        state, one = block(state, CALLS_A_BLOCK)
        seconds.append(one)
    return statistics.median(seconds)
