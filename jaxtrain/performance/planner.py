"""What plans configs for a target, and looks at their data for it."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jaxtrain import config as config_lib
from jaxtrain import tasks
from jaxtrain.config import Config
from jaxtrain.data import loader, sources
from jaxtrain.data.batch import train_spec
from jaxtrain.data.placeholder import stand_in
from jaxtrain.errors import UserError
from jaxtrain.performance.bounds import bound
from jaxtrain.performance.facts import Facts
from jaxtrain.performance.kept_facts import facts_of
from jaxtrain.performance.plan import Plan
from jaxtrain.performance.targets import GPUS, Gpu, Target, target_of
from jaxtrain.run.settle import settle
from jaxtrain.run.timetable import make_timetable

# The part of a GPU's memory that JAX takes at its start, and works with, and what
# changes it.
FRACTION_VARIABLE, FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION", 0.75


@dataclass(frozen=True, kw_only=True)
class Planner:
    """Plans configs for one target: what all of them share.

    Attributes:
      target: to compile for.
      source: of the data, though others may stand for it.
      image_bytes: of an image as the host hands it on.
      shapes: of the data and outputs: all that a program depends on beside the config.
      num_examples: of the training split.
      has_validation: whether there is such a split.
    """

    target: Target
    source: str
    image_bytes: int
    shapes: Any
    num_examples: int
    has_validation: bool

    def facts(self, *configs: Config) -> list[Facts | str]:
        """Return the facts of the step of each config, or why there are none."""
        return facts_of(configs, self.target, self.shapes)

    def alternatives(
        self, config: Config, changes: Sequence[tuple[str, Any]]
    ) -> list[Plan | str]:
        """Plan a config with each of some changes alone, or tell why there is none.

        Args:
          config: that is changed.
          changes: the dotted path of a field, and its new value.
        """
        changed = [_changed(config, *change) for change in changes]
        facts = iter(self.facts(*(c for c in changed if isinstance(c, Config))))
        return [
            c if isinstance(c, str) else self._plan_or_error(c, next(facts))
            for c in changed
        ]

    def plan(self, config: Config) -> Plan:
        """Plan one config.

        Raises:
          UserError: config, data and devices do not fit.
        """
        found = self._plan_or_error(config, self.facts(config)[0])
        if isinstance(found, str):
            raise UserError(found)
        return found

    def _plan_or_error(self, config: Config, facts: Facts | str) -> Plan | str:
        return facts if isinstance(facts, str) else self._plan_of(config, facts)

    def _plan_of(self, config: Config, facts: Facts) -> Plan:
        timetable = make_timetable(
            config, self.num_examples, has_validation=self.has_validation
        )
        gpu = self.target.gpu or GPUS.get(target_of(facts.device_kind) or "")
        roof = None
        if gpu is not None:
            each = facts.num_devices // self.target.num_nodes
            roof = bound(facts, gpu, each)
        usable = facts.usable_bytes
        if usable is None:
            assert gpu is not None
            usable = usable_bytes(gpu)
        return Plan(
            config=config,
            target=self.target,
            source=self.source,
            facts=facts,
            timetable=timetable,
            image_bytes=self.image_bytes,
            usable_bytes=usable,
            gpu=gpu,
            bound=roof,
        )


def make_planner(config: Config, target: Target) -> tuple[Planner, Config]:
    """Look at the data of a config; return what plans it, and the config settled.

    Data that are not prepared are replaced by generated images of the same shape.

    Raises:
      UserError: the data are not there, or do not fit the config.
    """
    source, data = config.data.source, stand_in(config.data)
    config = settle(replace(config, data=data)).config
    splits = sources.load(config.data, config.seed)
    if target.gpu is not None:
        # As a run on such a GPU decides it.
        memory = usable_bytes(target.gpu)
        cached = loader.should_cache(config.data, splits, memory)
        where = "device" if cached else "stream"
        config = config_lib.replace(config, "data.cache", where)
    shape = splits.input_shape
    facts = splits.train.facts
    task = tasks.build(config.task, shape, facts, config.train, config.task_options)
    stored = train_spec(config.data, splits.train).stored()
    lengths = [len(source) for source in splits.named().values()]
    outputs = task.abstract_outputs((1,), np.float32)
    planner = Planner(
        target=target,
        source=source,
        image_bytes=math.prod(shape),
        shapes=(stored, shape, outputs, lengths),
        num_examples=len(splits.train),
        has_validation=splits.validation is not None,
    )
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


def _changed(config: Config, path: str, value: Any) -> Config | str:
    try:
        return config_lib.replace(config, path, value)
    except UserError as error:
        return str(error)
