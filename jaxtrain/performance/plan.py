"""Will a config fit on a target, what does a step take there, how fast can it be."""

import math
import os
from dataclasses import dataclass, replace
from typing import Any

import jax

from jaxtrain import tasks
from jaxtrain.config import Config
from jaxtrain.data import sources
from jaxtrain.data.placeholder import stand_in
from jaxtrain.errors import UserError
from jaxtrain.performance.bounds import Bound, bound
from jaxtrain.performance.facts import Facts
from jaxtrain.performance.kept_facts import facts_of
from jaxtrain.performance.targets import GPUS, Gpu, Target, target_of
from jaxtrain.run.settle import settle
from jaxtrain.run.timetable import Timetable, make_timetable

# The part of a GPU's memory that JAX takes at its start, and works with, and what
# changes it.
FRACTION_VARIABLE, FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION", 0.75


@dataclass(frozen=True)
class Planner:
    """Plans configs for one target: what all of them share.

    Attributes:
      target: to compile for.
      source: of the data, though others may stand for it.
      shape: of the images, and the number of outputs.
      num_examples: of the training split.
      has_validation: whether there is such a split.
    """

    target: Target
    source: str
    shape: tuple[int, ...]
    num_examples: int
    has_validation: bool

    def facts(self, *configs: Config) -> list[Facts | str]:
        """Return the facts of the step of each config, or why there are none."""
        return facts_of(configs, self.target, (self.shape, self.num_examples))

    def plan(self, config: Config) -> "Plan":
        """Plan one config.

        Raises:
          UserError: config, data and devices do not fit.
        """
        return self.plan_of(config, self.facts(config)[0])

    def plan_of(self, config: Config, facts: Facts | str) -> "Plan":
        """Plan with facts that are there; raise UserError if they are an error."""
        if isinstance(facts, str):
            raise UserError(facts)
        timetable = make_timetable(
            config, self.num_examples, has_validation=self.has_validation
        )
        gpu = GPUS.get(target_of(facts.device_kind) or "")
        roof = None
        if gpu is not None:
            each = facts.num_devices // self.target.num_nodes
            roof = bound(facts, gpu, _peak(facts.products, gpu), each)
        usable = facts.usable_bytes
        if usable is None:
            assert gpu is not None
            usable = int(gpu.memory * _fraction())
        return Plan(
            config=config,
            target=self.target,
            source=self.source,
            facts=facts,
            timetable=timetable,
            image_bytes=math.prod(self.shape[:3]),
            usable_bytes=usable,
            bound=roof,
        )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run of a config takes on a target.

    Attributes:
      config: settled.
      target: that it is compiled for.
      source: of the data.
      facts: of the compiled step.
      timetable: of the run.
      image_bytes: of an image as the host hands it on.
      usable_bytes: those of a device that JAX works with.
      bound: on the time of a step; None: nothing is known of the devices.
    """

    config: Config
    target: Target
    source: str
    facts: Facts
    timetable: Timetable
    image_bytes: int
    usable_bytes: int
    bound: Bound | None

    @property
    def fits(self) -> bool:
        return self.facts.peak_bytes <= self.usable_bytes

    @property
    def images_per_second(self) -> float | None:
        """The bound, of all devices."""
        return self.bound and self.facts.batch_size / self.bound.step_seconds

    @property
    def hours(self) -> float | None:
        """Of all training steps at the bound; evaluations and the start come on top."""
        steps = self.timetable.total_steps
        return self.bound and steps * self.bound.step_seconds / 3600

    @property
    def disk_bytes(self) -> int:
        """Of the checkpoints that are kept, and one that is being written."""
        save = self.config.checkpoint
        return (save.keep + save.keep_best + 1) * self.facts.checkpoint_bytes

    def to_json(self, price: float | None = None) -> dict[str, Any]:
        """Return what plan.json holds; `price` is that of a device and an hour."""
        facts, roof = self.facts, self.bound
        hours = self.hours
        return {
            "target": str(self.target),
            "device_kind": facts.device_kind,
            "num_devices": facts.num_devices,
            "num_nodes": self.target.num_nodes,
            "mesh": facts.mesh,
            "preset": self.config.parallel.preset,
            "precision": self.config.precision,
            "batch_size": facts.batch_size,
            "num_params": facts.num_params,
            "fits": self.fits,
            "state_bytes": facts.state_bytes,
            "input_bytes": facts.input_bytes,
            "peak_bytes": facts.peak_bytes,
            "usable_bytes": self.usable_bytes,
            "hbm_bytes": facts.hbm_bytes,
            "num_kernels": facts.num_kernels,
            "flops": facts.flops,
            "collectives": facts.collectives,
            "bound_seconds": roof and dict(roof.alone),
            "step_seconds_bound": roof and roof.step_seconds,
            "images_per_second_bound": self.images_per_second,
            "bound_by": roof and roof.bound_by,
            "steps": self.timetable.total_steps,
            "hours_bound": hours,
            "cost_bound": hours and price and hours * price * facts.num_devices,
            "checkpoint_bytes": facts.checkpoint_bytes,
            "disk_bytes": self.disk_bytes,
            "versions": {"jax": jax.__version__},
        }


def make_planner(config: Config, target: Target) -> tuple[Planner, Config]:
    """Look at the data of a config; return what plans it, and the config settled.

    Data that are not prepared are replaced by generated images of the same shape.

    Raises:
      UserError: the data are not there, or do not fit the config.
    """
    source, data = config.data.source, stand_in(config.data)
    config = settle(replace(config, data=data)).config
    splits = sources.load(config.data, config.seed)
    shape = splits.input_shape
    task = tasks.build(config.task, shape, splits.train.facts, config.train)
    return (
        Planner(
            target,
            source,
            (*shape, task.num_outputs),
            len(splits.train),
            splits.validation is not None,
        ),
        config,
    )


def _fraction() -> float:
    text = os.environ.get(FRACTION_VARIABLE, "")
    try:
        return float(text) if text else FRACTION
    except ValueError:
        raise UserError(
            f"${FRACTION_VARIABLE} = {text!r}: expected a number such as 0.9"
        ) from None


def _peak(products: str, gpu: Gpu) -> float:
    """Return the FLOP a second; what has no tensor cores is computed as float32."""
    return gpu.peaks.get(products, gpu.peaks["float32"])
