"""Memory, kernels and collectives of a config's compiled step, for any target.

Results are cached on disk.
"""

import dataclasses
import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jaxtrain import config as config_lib
from jaxtrain.config import Config
from jaxtrain.console import print_stderr
from jaxtrain.data.datasets import should_cache
from jaxtrain.errors import UserError
from jaxtrain.json_files.run_id import read_of_run
from jaxtrain.json_files.write import write_digested
from jaxtrain.parallel.device_memory import peak_bytes
from jaxtrain.parallel.devices import cache_folder
from jaxtrain.plugins.plan import collectives, gpu_compiler
from jaxtrain.plugins.plan.collectives import Collective
from jaxtrain.plugins.plan.measure import (
    bytes_per_device,
    compile_step,
    enough_memory,
)
from jaxtrain.plugins.plan.program import read_program
from jaxtrain.plugins.plan.targets import HERE, Target
from jaxtrain.trainer.setup import Setup, build_setup
from jaxtrain.training.state import num_params
from jaxtrain.trees import num_bytes

# JAX environment variables that do not affect compiled programs.
_IRRELEVANT_VARIABLES = {"JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE"}


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Memory, kernels and collectives of a compiled step, per device unless noted.

    Attributes:
      device_kind: Name of the device in JAX.
      usable_bytes: Bytes of device memory usable by JAX; None if the device is not
        present.
      num_devices: Number of devices of all nodes.
      mesh: Mesh axis -> size, for axes with more than one device.
      batch_size: Batch size over all devices.
      num_params: Number of parameters of the model.
      state_bytes: Bytes of the train state, including the optimizer state.
      input_bytes: Bytes of the other inputs: the batch, or the cached data set.
      cached: Whether the data set is cached on the device.
      peak_bytes: Peak bytes as planned by the compiler.
      checkpoint_bytes: Bytes of the train state without sharding.
      flops: FLOPs of convolutions and matrix products; on CPU, XLA's count for all
        operations.
      products: Dtype of the convolutions and matrix products, a key of `Gpu.peaks`.
      kernels: Kernels as (bytes, flops, number of launches).
      exchanges: Collectives of the program (see `HloProgram.collectives`).
      minimum_bytes: Lower bound on the bytes sent (see `collectives.minimum_bytes`).
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
    flops: int
    products: str
    kernels: list[tuple[int, int, int]]
    exchanges: list[Collective]
    minimum_bytes: int

    @property
    def num_kernels(self) -> int:
        """Number of kernel launches."""
        return sum(runs for *_, runs in self.kernels)

    @property
    def hbm_bytes(self) -> int:
        """Bytes read and written by the kernels (see `Kernel`)."""
        return sum(num_bytes * runs for num_bytes, _, runs in self.kernels)

    @property
    def collectives(self) -> dict[str, dict[str, Any]]:
        """Summary of the collectives by kind (see `collectives.summarize`)."""
        return collectives.summarize(self.exchanges)

    @property
    def wire_bytes(self) -> int:
        """Bytes sent, assuming ring collectives."""
        return round(sum(c.wire_bytes for c in self.exchanges))


def facts_of(
    configs: Sequence[Config], target: Target, shapes: Any
) -> list[Facts | str]:
    """Read the `Facts` of each config from the cache, or compile its step.

    Args:
      configs: Resolved configs of the runs.
      target: Target to compile for.
      shapes: Shapes of data and outputs, which are part of the cache key.

    Returns:
      Facts or an error message for each config.

    Raises:
      UserError: This machine cannot compile for the target.
    """
    paths = [_path(config, target, shapes) for config in configs]
    known: list[Facts | str | None] = [path and _read(path) for path in paths]
    missing = [i for i, facts in enumerate(known) if facts is None]
    if missing:
        new = [configs[i] for i in missing]
        sizes = sorted({config.data.batch_size for config in new})
        programs = f"{len(new)} programs" if len(new) > 1 else "a program"
        print_stderr(
            f"compiling {programs} for {target} with data.batch_size = "
            f"{', '.join(map(str, sizes))}: this takes up to a minute per program"
        )
        compiled = gpu_compiler.call(target, compile_facts, new, target)
        for i, facts in zip(missing, compiled, strict=True):
            known[i], path = facts, paths[i]
            if path is not None and isinstance(facts, Facts):
                write_digested(path, dataclasses.asdict(facts))
    return [facts for facts in known if facts is not None]


def compile_facts(configs: Sequence[Config], target: Target) -> list[Facts | str]:
    """Compile the step of each config; return its facts, or an error message.

    Must be called in a process for the target (`gpu_compiler.call`).

    Args:
      configs: Configs with the same `parallel.xla_flags`, which apply per process.
      target: Target to compile for.
    """
    (flags,) = {config.parallel.xla_flags for config in configs}
    stand_ins = gpu_compiler.start(target, flags)
    found: list[Facts | str] = []
    for config in configs:
        try:
            setup = build_setup(config, devices=stand_ins)
            with enough_memory(config):
                found.append(_facts(setup, compile_step(setup)))
        except UserError as error:
            found.append(str(error))
    return found


def _facts(setup: Setup, program: jax.stages.Compiled) -> Facts:
    counted = read_program(program.as_text() or "")
    plan: Any = program.memory_analysis()
    costs: Any = program.cost_analysis() or {}
    state = bytes_per_device(setup.abstract_state)
    device, policy = setup.mesh.devices.flat[0], setup.policy
    launches = Counter[tuple[int, int]]()
    for kernel in counted.kernels:
        launches[kernel.bytes, kernel.flops] += kernel.runs
    return Facts(
        device_kind=device.device_kind,
        usable_bytes=_usable_bytes(device),
        num_devices=setup.mesh.size,
        mesh={axis: n for axis, n in setup.mesh.shape.items() if n > 1},
        batch_size=setup.timetable.batch_size,
        num_params=num_params(setup.abstract_state.params),
        state_bytes=state,
        input_bytes=max(0, plan.argument_size_in_bytes - state),
        cached=should_cache(setup.config.data, setup.splits),
        peak_bytes=peak_bytes(program),
        checkpoint_bytes=num_bytes(setup.abstract_state),
        # XLA reports FLOPs only on the CPU.
        flops=int(costs.get("flops", 0)) if device.platform == "cpu" else counted.flops,
        products=policy.product_dtype,
        kernels=[(*key, runs) for key, runs in launches.items()],
        exchanges=counted.collectives,
        minimum_bytes=_minimum_bytes(setup),
    )


def _minimum_bytes(setup: Setup) -> int:
    """Return the lower bound on the bytes sent (see `collectives.minimum_bytes`)."""
    # `param_bytes` is the size without sharding over `fsdp`.
    layout = dataclasses.replace(setup.layout, shard_params=False)
    params = jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
        setup.abstract_state.params,
        layout.state(setup.abstract_state).params,
    )
    copies, width = layout.copies, jnp.dtype(setup.policy.param_dtype).itemsize
    widths = {}
    if copies is not None:
        widths["gathered"] = jnp.dtype(copies.dtype).itemsize / width
        widths["summed"] = jnp.dtype(copies.sum_dtype).itemsize / width
    num, preset = bytes_per_device(params), setup.config.parallel.preset
    return collectives.minimum_bytes(setup.mesh.shape, num, preset, **widths)


def _usable_bytes(device: Any) -> int | None:
    """Return the usable memory of a device in bytes; None if the device is absent."""
    if device not in jax.devices():
        return None
    if device.platform == "cpu":
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return pages // jax.device_count()
    return device.memory_stats()["bytes_limit"]


def _read(path: Path) -> Facts | None:
    try:
        return read_of_run(path, Facts)
    except UserError:
        return None  # The file is damaged or from another version: compile again.


def _path(config: Config, target: Target, shapes: Any) -> Path | None:
    """Return the cache path of the facts, or None if they must not be cached.

    Facts of this machine's devices and of configs with custom code are not cached,
    because the driver and the code may change unnoticed.
    """
    folder = cache_folder("plans")
    if folder is None or target.name == HERE or config_lib.own_references(config):
        return None
    compiler: Any = os.sysconf("SC_PHYS_PAGES")
    if target.gpu is not None:
        compiler = gpu_compiler.COMPILER.find(), target.gpu.description
    variables = {
        name: value
        for name, value in sorted(gpu_compiler.environment(target).items())
        if name == "XLA_FLAGS"
        or (name.startswith("JAX_") and name not in _IRRELEVANT_VARIABLES)
    }
    parts = [config_lib.to_json(config), str(target), str(compiler), variables, shapes]
    digest = hashlib.sha256(repr([*parts, jax.__version__, _package()]).encode())
    return folder / f"{digest.hexdigest()}.json"


@cache
def _package() -> str:
    """Return a digest of jaxtrain's source files."""
    files = sorted(Path(__file__).parents[2].rglob("*.py"))
    joined = b"".join(hashlib.sha256(path.read_bytes()).digest() for path in files)
    return hashlib.sha256(joined).hexdigest()
