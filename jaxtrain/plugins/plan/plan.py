"""Will a config fit on a target, what does a step take there, how fast can it be."""

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
from jaxtrain.trainer.settle import settle
from jaxtrain.trainer.timetable import Timetable
from jaxtrain.trainer.training_facts import training_facts

# The part of a GPU's memory that JAX takes at its start, and works with, and what
# changes it.
FRACTION_VARIABLE, FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION", 0.75
# Fields of `Facts` that plan.json holds under their names.
SHOWN_FACTS = (
    *("device_kind", "num_devices", "mesh", "batch_size", "num_params"),
    *("state_bytes", "input_bytes", "peak_bytes", "checkpoint_bytes"),
    *("hbm_bytes", "num_kernels", "flops", "collectives", "wire_bytes"),
)


@dataclass(frozen=True, kw_only=True)
class Planner:
    """Plans configs for one target: what all of them share.

    Attributes:
      target: Target to compile for.
      source: Source of the data, though others may stand for it.
      splits: Splits of the data, which are not read.
      shapes: Shapes of the data and outputs: all that a program depends on beside the
        config.
    """

    target: Target
    source: str
    splits: Splits
    shapes: Any

    def plan(self, config: Config) -> "Plan":
        """Plan one config.

        Raises:
          UserError: config, data and devices do not fit.
        """
        plan = self.plans({"": config})[""]
        if isinstance(plan, str):
            raise UserError(plan)
        return plan

    def plans(self, configs: Mapping[str, Config]) -> "dict[str, Plan | str]":
        """Plan several configs with the same XLA flags, or say why there is no plan."""
        facts = facts_of([*configs.values()], self.target, self.shapes)
        return {
            name: f if isinstance(f, str) else Plan(planner=self, config=c, facts=f)
            for (name, c), f in zip(configs.items(), facts, strict=True)
        }


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run of a config takes on a target.

    Attributes:
      planner: Planner of the target.
      config: Config of the run, settled.
      facts: Facts of the compiled step.
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
        """What is known of the devices; None: nothing."""
        known = gpu_name(self.facts.device_kind)
        return self.planner.target.gpu or (GPUS[known] if known else None)

    @cached_property
    def bound(self) -> Bound | None:
        """The bound on the time of a step; None: nothing is known of the devices."""
        a_node = self.facts.num_devices // self.planner.target.num_nodes
        return self.gpu and bound(self.facts, self.gpu, a_node)

    @property
    def usable_bytes(self) -> int:
        """Bytes of a device that JAX works with."""
        if self.facts.usable_bytes is not None:
            return self.facts.usable_bytes
        assert self.gpu is not None
        return usable_bytes(self.gpu)

    @property
    def peak_bytes(self) -> int:
        return self.facts.peak_bytes

    @property
    def fixed_bytes(self) -> int:
        """Bytes of state and kept data, which do not grow with the batch."""
        facts = self.facts
        return facts.state_bytes + (facts.input_bytes if facts.cached else 0)

    @property
    def fits(self) -> bool:
        return self.facts.peak_bytes <= self.usable_bytes

    @property
    def images_per_second(self) -> float | None:
        """The bound, of all devices."""
        return self.bound and self.facts.batch_size / self.bound.step_seconds

    @property
    def hours(self) -> float | None:
        """Of all training steps at the bound; evaluations and the start come on top.

        Where the first steps are smaller, each counts as one of the last.
        """
        steps = self.timetable.total_steps
        return self.bound and steps * self.bound.step_seconds / 3600

    def cost(self, price: float | None) -> float | None:
        """Return that of all devices at the bound, at the price of one and an hour."""
        hours = self.hours
        return hours and price and hours * price * self.facts.num_devices

    @property
    def disk_bytes(self) -> int:
        """What the run demands on the disk of its checkpoints: see `check_space`."""
        return self.num_copies * self.facts.checkpoint_bytes

    @property
    def num_copies(self) -> int:
        """Checkpoints that may lie on the disk at once."""
        return num_copies(self.config.checkpoint)

    def to_json(self, price: float | None = None) -> dict[str, Any]:
        """Return what plan.json holds; `price` is that of a device and an hour."""
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
    """Look at the data of a config; return what plans it, and the config settled.

    Data that are not prepared are replaced by generated images of the same shape.

    Args:
      config: Config of the run.
      target: Target to compile for.
      memory: Bytes that JAX works with on a GPU; None: what it takes of the target's.

    Raises:
      UserError: the data are not there, or do not fit the config.
    """
    source, data = config.data.source, stand_in(config.data)
    config = settle(replace(config, data=data)).config
    splits = sources.load(config.data, config.seed)
    if target.gpu is not None:
        # As a run on such a GPU decides it.
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
    """Return what JAX takes of a GPU's memory.

    Raises:
      UserError: the variable that tells it is no number above 0.
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
