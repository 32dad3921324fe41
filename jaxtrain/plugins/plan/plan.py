"""Plan of a config on a target: memory, FLOPs, and an upper bound on throughput."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np

from jaxtrain import config as config_lib
from jaxtrain.checkpoints.retention import num_copies
from jaxtrain.config import Config
from jaxtrain.data import sources
from jaxtrain.data.batch_specs import train_spec
from jaxtrain.data.datasets import should_cache
from jaxtrain.data.sources import Splits
from jaxtrain.errors import UserError
from jaxtrain.parallel.gpus import GPUS, Gpu, gpu_name
from jaxtrain.plugins.plan.bounds import Bound, bound
from jaxtrain.plugins.plan.facts import Facts, facts_of
from jaxtrain.plugins.plan.stand_in import stand_in
from jaxtrain.plugins.plan.targets import Target
from jaxtrain.tasks.build import build_task
from jaxtrain.tasks.outputs import abstract_outputs
from jaxtrain.trainer.periods import make_timetable
from jaxtrain.trainer.resolve import resolve_config
from jaxtrain.trainer.timetable import Timetable
from jaxtrain.trainer.training_facts import training_facts

# Fraction of GPU memory that JAX preallocates: environment variable, and default.
FRACTION_VARIABLE, FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION", 0.75
# Fields of `Facts` copied to plan.json.
SHOWN_FACTS = (
    *("device_kind", "num_devices", "mesh", "batch_size", "num_params"),
    *("state_bytes", "input_bytes", "peak_bytes", "checkpoint_bytes"),
    *("hbm_bytes", "num_kernels", "flops", "collectives", "wire_bytes"),
)


@dataclass(frozen=True, kw_only=True)
class Planner:
    """Planner of configs for one target.

    Attributes:
      target: Target to compile for.
      source: `data.source` of the config, even if synthetic images replace the data.
      splits: Splits of the data.
      shapes: Shapes of data and outputs; with the config, they determine the program.
    """

    target: Target
    source: str
    splits: Splits
    shapes: Any

    def plan(self, config: Config) -> "Plan":
        """Plan one config.

        Raises:
          UserError: The config is incompatible with the data or the devices.
        """
        plan = self.plans({"": config})[""]
        if isinstance(plan, str):
            raise UserError(plan)
        return plan

    def plans(self, configs: Mapping[str, Config]) -> "dict[str, Plan | str]":
        """Plan configs with the same XLA flags; return plans or errors by name."""
        facts = facts_of([*configs.values()], self.target, self.shapes)
        return {
            name: f if isinstance(f, str) else Plan(planner=self, config=c, facts=f)
            for (name, c), f in zip(configs.items(), facts, strict=True)
        }


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Plan of a run on a target.

    Attributes:
      planner: Planner of the target.
      config: Resolved config of the run.
      facts: Memory, kernels and collectives of the compiled step.
    """

    planner: Planner
    config: Config
    facts: Facts

    @cached_property
    def timetable(self) -> Timetable:
        splits = self.planner.splits
        validation = splits.validation is not None
        return make_timetable(self.config, len(splits.train), has_validation=validation)

    @property
    def gpu(self) -> Gpu | None:
        """Specification of the GPU, or None if unknown."""
        known = gpu_name(self.facts.device_kind)
        return self.planner.target.gpu or (GPUS[known] if known else None)

    @cached_property
    def bound(self) -> Bound | None:
        """Lower bound on the time of a step, or None for unknown devices."""
        a_node = self.facts.num_devices // self.planner.target.num_nodes
        return self.gpu and bound(self.facts, self.gpu, a_node)

    @property
    def usable_bytes(self) -> int:
        """Bytes of device memory usable by JAX."""
        if self.facts.usable_bytes is not None:
            return self.facts.usable_bytes
        assert self.gpu is not None
        return usable_bytes(self.gpu)

    @property
    def peak_bytes(self) -> int:
        return self.facts.peak_bytes

    @property
    def fixed_bytes(self) -> int:
        """Bytes per device of the state and a cached data set."""
        facts = self.facts
        return facts.state_bytes + (facts.input_bytes if facts.cached else 0)

    @property
    def fits(self) -> bool:
        return self.facts.peak_bytes <= self.usable_bytes

    @property
    def images_per_second(self) -> float | None:
        """Upper bound on the throughput of all devices."""
        return self.bound and self.facts.batch_size / self.bound.step_seconds

    @property
    def hours(self) -> float | None:
        """Duration of all training steps in hours, at the throughput bound.

        Evaluations and start-up are excluded. Early steps with smaller images
        or frozen layers count as full steps.
        """
        steps = self.timetable.total_steps
        return self.bound and steps * self.bound.step_seconds / 3600

    def cost(self, price: float | None) -> float | None:
        """Return the cost of `hours` on all devices; `price` is per device-hour."""
        hours = self.hours
        return hours and price and hours * price * self.facts.num_devices

    @property
    def disk_bytes(self) -> int:
        """Bytes required on disk for checkpoints (see `check_space`)."""
        return self.num_copies * self.facts.checkpoint_bytes

    @property
    def num_copies(self) -> int:
        """Maximum number of checkpoints on disk at the same time."""
        return num_copies(self.config.checkpoint)

    def to_json(self, price: float | None = None) -> dict[str, Any]:
        """Return the contents of plan.json; `price` is per device-hour."""
        facts, roof = self.facts, self.bound
        return {
            "target": str(self.planner.target),
            "source": self.planner.source,
            "num_nodes": self.planner.target.num_nodes,
            "preset": self.config.parallel.preset,
            "precision": self.config.precision,
            **{name: getattr(facts, name) for name in SHOWN_FACTS},
            "minimum_wire_bytes": facts.minimum_bytes,
            "fits": self.fits,
            "usable_bytes": self.usable_bytes,
            "bound_seconds": roof and dict(roof.alone),
            "step_seconds_bound": roof and roof.step_seconds,
            "images_per_second_bound": self.images_per_second,
            "bound_by": roof and roof.bound_by,
            "steps": self.timetable.total_steps,
            "hours_bound": self.hours,
            "cost_bound": self.cost(price),
            "disk_bytes": self.disk_bytes,
            "versions": {"jax": jax.__version__},
        }


def make_planner(
    config: Config, target: Target, memory: int | None = None
) -> tuple[Planner, Config]:
    """Inspect the data of a config; return a planner and the resolved config.

    An unprepared TFDS data set is replaced by synthetic images of the same shape.

    Args:
      config: Config of the run.
      target: Target to compile for.
      memory: Bytes per GPU usable by JAX. Defaults to `usable_bytes(target.gpu)`.

    Raises:
      UserError: The data set is missing, or does not fit the config.
    """
    source, data = config.data.source, stand_in(config.data)
    config = resolve_config(replace(config, data=data)).config
    splits = sources.load(config.data, config.seed)
    if target.gpu is not None:
        # Cache the data on the device if a run on this GPU would.
        memory = usable_bytes(target.gpu) if memory is None else memory
        cached = should_cache(config.data, splits, memory)
        where = "device" if cached else "stream"
        config = config_lib.replace(config, "data.cache", where)
    shape = splits.input_shape
    facts = training_facts(config, splits.train)
    task = build_task(config, shape, facts)
    stored = train_spec(config.data, splits.train).stored()
    lengths = [len(source) for source in splits.named().values()]
    outputs = abstract_outputs(task, (1,), np.float32)
    shapes = (stored, shape, outputs, lengths)
    planner = Planner(target=target, source=source, splits=splits, shapes=shapes)
    return planner, config


def usable_bytes(gpu: Gpu) -> int:
    """Bytes of GPU memory that JAX preallocates.

    Raises:
      UserError: $XLA_PYTHON_CLIENT_MEM_FRACTION is not a positive number.
    """
    text = os.environ.get(FRACTION_VARIABLE) or str(FRACTION)
    try:
        part = float(text)
    except ValueError:
        part = math.nan
    if not 0 < part < math.inf:
        raise UserError(
            f"${FRACTION_VARIABLE} = {text!r}: expected a number above 0 such as 0.9"
        )
    return int(part * gpu.memory)
