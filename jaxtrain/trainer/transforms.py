"""Step transforms of a run, from the core and from plug-ins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jaxtrain.errors import UserError
from jaxtrain.models.base import Model
from jaxtrain.plugin import Table
from jaxtrain.trainer.timetable import Timetable
from jaxtrain.training import precision
from jaxtrain.training.averages import make_average
from jaxtrain.training.frozen import Frozen
from jaxtrain.training.transforms.base import StepTransform
from jaxtrain.training.transforms.core import CORE_NAMES, core_transforms

if TYPE_CHECKING:
    from jaxtrain.config import Config


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """Arguments of the step-transform factories.

    Attributes:
      config: Resolved config of the run.
      timetable: Timetable of the run.
      model: Abstract model of the run.
      never_trained: Layers that are frozen for the entire run.
      kernel_order: Memory order of kernel dims, outermost first; None for row-major.
      sets_rate: Whether a callback scales the learning rate.
    """

    config: Config
    timetable: Timetable
    model: Model
    never_trained: Frozen
    kernel_order: tuple[int, ...] | None = None
    sets_rate: bool = False


# Factories from plug-ins; a factory returns None if the config does not enable its
# transform.
TRANSFORMS: Table[Callable[[RunFacts], StepTransform | None]] = Table("transforms", {})


def make_transforms(facts: RunFacts) -> tuple[StepTransform, ...]:
    """Create the transforms of a run in order, plug-ins first.

    Raises:
      UserError: Options of a transform are invalid, or two transforms have the same
        name.
    """
    config = facts.config
    average = make_average(config.optimizer, config.train, facts.timetable.swa)
    scales_loss = precision.parse(config.precision).scales_loss
    core = core_transforms(
        config.optimizer,
        config.train,
        average,
        total_steps=facts.timetable.total_steps,
        scales_loss=scales_loss,
        sets_rate=facts.sets_rate,
    )
    found = [one for make in TRANSFORMS.values() if (one := make(facts)) is not None]
    names = [getattr(one, "name", None) for one in found]
    for name in names:
        if not isinstance(name, str) or name in CORE_NAMES or names.count(name) > 1:
            raise UserError(
                f"step transform {name!r}: the name is empty or not unique: rename the "
                "transform, or uninstall the plug-in"
            )
    return (*found, *core)
