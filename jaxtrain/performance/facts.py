"""What the compiled step of a config takes of each device, for any target."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from jaxtrain.config import Config
from jaxtrain.data import loader
from jaxtrain.errors import UserError
from jaxtrain.parallel import devices
from jaxtrain.parallel.xla_flags import xla_flags
from jaxtrain.performance import collectives, gpu_compiler
from jaxtrain.performance.measure import (
    bytes_per_device,
    compile_step,
    enough_memory,
    peak_bytes,
    settled_setup,
)
from jaxtrain.performance.program import HloProgram, read_program
from jaxtrain.performance.targets import Target
from jaxtrain.run.setup import Setup
from jaxtrain.training.precision import Policy
from jaxtrain.training.state import num_params


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Of a step on one device, but for what is said to be of all.

    Attributes:
      device_kind: as JAX names them.
      usable_bytes: of a device's memory; None: a device that is not here.
      num_devices: of all nodes.
      mesh: sizes of the axes that are not 1.
      batch_size: of all devices.
      num_params: of the model.
      state_bytes: of what a step hands on to the next: parameters, optimizer state.
      input_bytes: of the batch, or of the whole data set where it is kept there.
      cached: whether it is kept there.
      peak_bytes: of all that is alive at once, as the compiler plans it.
      checkpoint_bytes: of the whole state, wherever it lies.
      num_kernels: launches.
      hbm_bytes: that they read and write (see `HloProgram`).
      flops: of convolutions and matrix products; on a CPU XLA's count of all.
      products: their dtype, as the keys of `Gpu.peaks`.
      kernels: bytes and FLOPs of each launch, most of them alike: (bytes, flops, runs).
      collectives: kind -> count, bytes, ... (see `collectives.summarize`).
      exchanges: bytes sent as a ring, and the first group, of each collective.
      minimum_bytes: what must be sent in theory (see `collectives.minimum_bytes`).
    """

    device_kind: str
    usable_bytes: int | None
    num_devices: int
    mesh: dict[str, int]
    batch_size: int
    num_params: int
    state_bytes: int
    input_bytes: int
    cached: bool
    peak_bytes: int
    checkpoint_bytes: int
    num_kernels: int
    hbm_bytes: int
    flops: int
    products: str
    kernels: list[tuple[int, int, int]]
    collectives: dict[str, dict[str, Any]]
    exchanges: list[tuple[float, list[int]]]
    minimum_bytes: int

    @property
    def wire_bytes(self) -> int:
        """What is sent if the collectives run as rings."""
        return round(sum(num_bytes for num_bytes, _ in self.exchanges))


@dataclass(frozen=True, kw_only=True)
class CompileJob:
    """Configs to compile for a target, one after the other.

    They have the same `parallel.xla_flags`, as a process has.
    """

    configs: Sequence[Config]
    target: Target


def compile_facts(job: CompileJob) -> list[Facts | str]:
    """Compile each config; return its facts, or why it cannot be (a user's mistake).

    To be called in a process whose devices are the target's (`gpu_compiler.call`).
    """
    (flags,) = {config.parallel.xla_flags for config in job.configs}
    stand_ins = None
    if job.target.gpu is not None:
        gpu_compiler.check_versions()
        # Those of a GPU, though this process runs on the CPU.
        os.environ["XLA_FLAGS"] = xla_flags(flags, "gpu", os.environ)
        devices.start("cpu")
        stand_ins = gpu_compiler.devices(job.target)
    else:
        devices.start("auto", flags=flags)
    return [_facts_or_error(config, stand_ins) for config in job.configs]


def _facts_or_error(config: Config, stand_ins: Sequence[Any] | None) -> Facts | str:
    try:
        setup = settled_setup(config, stand_ins)
        with enough_memory(config):
            return _facts(setup, compile_step(setup))
    except UserError as error:
        return str(error)


def _facts(setup: Setup, program: jax.stages.Compiled) -> Facts:
    counted = read_program(program.as_text() or "")
    plan: Any = program.memory_analysis()
    state = bytes_per_device(setup.abstract_state)
    device = setup.mesh.devices.flat[0]
    whole = jax.tree.leaves(setup.abstract_state)
    return Facts(
        device_kind=device.device_kind,
        usable_bytes=_usable_bytes(device),
        num_devices=setup.mesh.size,
        mesh={axis: n for axis, n in setup.mesh.shape.items() if n > 1},
        batch_size=setup.timetable.batch_size,
        num_params=num_params(setup.abstract_state.params),
        state_bytes=state,
        input_bytes=max(0, plan.argument_size_in_bytes - state),
        cached=loader.should_cache(setup.config.data, setup.splits),
        peak_bytes=peak_bytes(program),
        checkpoint_bytes=sum(x.size * x.dtype.itemsize for x in whole),
        num_kernels=counted.num_kernels,
        hbm_bytes=counted.hbm_bytes,
        flops=_flops_by_xla(program) if device.platform == "cpu" else counted.flops,
        products=_products(setup.policy),
        kernels=_launches(counted),
        collectives=collectives.summarize(counted.collectives),
        exchanges=[(c.wire_bytes, list(c.group)) for c in counted.collectives],
        minimum_bytes=_minimum_bytes(setup),
    )


def _launches(program: HloProgram) -> list[tuple[int, int, int]]:
    """Return bytes and FLOPs of the kernels, and how often each pair occurs."""
    launches: dict[tuple[int, int], int] = {}
    for kernel in program.kernels:
        key = kernel.bytes, kernel.flops
        launches[key] = launches.get(key, 0) + kernel.runs
    return [(*key, runs) for key, runs in launches.items()]


def _minimum_bytes(setup: Setup) -> int:
    """Return what a device must send in theory (`collectives.minimum_bytes`)."""
    # As the `model` axis alone splits them.
    shardings = replace(setup.layout, shard_params=False).state(setup.abstract_state)
    params = jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
        setup.abstract_state.params,
        shardings.params,
    )
    copies, width = setup.layout.copies, jnp.dtype(setup.policy.param_dtype).itemsize
    widths = {}
    if copies is not None:
        widths["gathered"] = jnp.dtype(copies.dtype).itemsize / width
        widths["summed"] = jnp.dtype(copies.sum_dtype).itemsize / width
    return collectives.minimum_bytes(
        setup.mesh.shape,
        bytes_per_device(params),
        setup.config.parallel.preset,
        **widths,
    )


def _usable_bytes(device: Any) -> int | None:
    """Return what a device has for a program; None: it is not here."""
    if device not in jax.devices():
        return None
    if device.platform == "cpu":
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return pages // jax.device_count()
    return device.memory_stats()["bytes_limit"]


def _products(policy: Policy) -> str:
    name = jnp.dtype(policy.compute_dtype).name
    return policy.products if policy.products == "tensorfloat32" else name


def _flops_by_xla(program: jax.stages.Compiled) -> int:
    """Return XLA's own count, which it has for CPUs alone."""
    costs: Any = program.cost_analysis() or {}
    return int(costs.get("flops", 0))
