"""The phases of a run: what each trains, how, and on images of which size."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from jaxtrain.config import AugmentConfig, Config
from jaxtrain.errors import UserError
from jaxtrain.models.base import Model
from jaxtrain.models.batch_norm import momenta
from jaxtrain.models.layer_paths import find_layers
from jaxtrain.trainer.timetable import Timetable
from jaxtrain.trainer.transforms import RunFacts, make_transforms
from jaxtrain.training.frozen import (
    NOTHING,
    Frozen,
    trained_only,
    two_phases,
    with_told_rate,
)
from jaxtrain.training.optimizers import make_optimizer
from jaxtrain.training.rates import make_rates
from jaxtrain.training.schedules import Schedule
from jaxtrain.training.state import split_model
from jaxtrain.training.update import Update

T = TypeVar("T")

# In `train.fine_tune`, the learning rate of the first piece as a part of the last's.
FIRST_PIECE_RATE = 1 / 100


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Steps that are the same program.

    Attributes:
      start: steps done before it.
      update: what they do with their gradients; its `frozen` layers have none.
      augment: How their images are changed.
      image_size: Height and width of the training images; None: those of evaluations.
    """

    start: int
    update: Update
    augment: AugmentConfig
    image_size: int | None = None


def build_phases(
    config: Config,
    timetable: Timetable,
    model: Model,
    schedule: Schedule | None,
    kernel_order: tuple[int, ...] | None = None,
) -> tuple[Phase, ...]:
    """Return the phases in turn; the state has the same structure in all of them.

    Args:
      timetable: Timetable with the step from which on all layers are trained.
      model: Abstract model, without values.
      schedule: Schedule of the learning rate; None for an optimizer that searches its
        steps.
      kernel_order: Dims of kernels from the outermost in memory on; None: row by row.

    Raises:
      UserError: optimizer, learning rates, frozen layers and model do not fit.
    """
    frozen = find_frozen(config, model)
    start = timetable.unfreeze_step
    never = frozen if start is None else NOTHING
    make = partial(make_optimizer, config.optimizer)
    update = Update(
        config.optimizer,
        config.train,
        make(schedule),
        schedule,
        momenta(model),
        rates=make_rates(model, _layer_decay(config, model)),
        transforms=make_transforms(
            RunFacts(
                config=config,
                timetable=timetable,
                model=model,
                never_trained=never,
                kernel_order=kernel_order,
            )
        ),
    )
    updates = {0: update}
    if start is not None:
        first, second = two_phases(update.tx, frozen, make)
        # Each phase of `fine_tune` has a cycle of the learning rate of its own.
        rate_from = start if config.train.fine_tune else 0
        updates = {
            0: replace(update, tx=first, frozen=frozen),
            start: replace(update, tx=second, rate_from=rate_from),
        }
    elif frozen.layers:
        tx = trained_only(update.tx, frozen)
        updates = {0: replace(update, tx=tx, frozen=frozen)}
    if timetable.fix_step is not None:
        updates = _with_fixed_statistics(updates, timetable.fix_step, make)
    sizes = dict(timetable.image_sizes) or {0: None}
    augments = {0: config.data.augment}
    if timetable.close_mosaic_step is not None:
        # With no option that only it has a use for, as without it.
        plain = AugmentConfig()
        augments[timetable.close_mosaic_step] = replace(
            config.data.augment,
            mosaic=plain.mosaic,
            close_mosaic=plain.close_mosaic,
        )
    return tuple(
        Phase(
            start=step,
            update=_last(updates, step),
            augment=_last(augments, step),
            image_size=_last(sizes, step),
        )
        for step in sorted(updates.keys() | augments.keys() | sizes.keys())
    )


def _with_fixed_statistics(
    updates: dict[int, Update], start: int, make: Callable[[Schedule], Any]
) -> dict[int, Update]:
    """Return updates whose statistics stay from a step on.

    The learning rate is that of the schedule from there on, which may be chosen for it
    to be low.

    Args:
      updates: Updates by the step that they begin at.
      start: Steps after which the statistics stay.
      make: Function that makes the optimizer of a schedule.
    """

    def fixed(update: Update) -> Update:
        if update.schedule is not None:
            if update.rate_from is None:
                update = replace(update, tx=with_told_rate(update.tx, make))
            update = replace(update, rate_from=max(start, update.rate_from or 0))
        return replace(update, frozen=replace(update.frozen, statistics=True))

    at = updates | {start: _last(updates, start)}
    return {
        step: update if step < start else fixed(update) for step, update in at.items()
    }


def _last(changes: Mapping[int, T], step: int) -> T:
    """Return what the last change up to a step brought."""
    return changes[max(start for start in changes if start <= step)]


def find_frozen(config: Config, model: Model) -> Frozen:
    """Return the layers that are frozen at first, or throughout.

    Raises:
      UserError: a pattern matches none, or nothing is left to train.
    """
    patterns = config.train.first_frozen
    found = [find_layers(model, "train.freeze", pattern) for pattern in patterns]
    frozen = Frozen(frozenset().union(*found))
    if not frozen.part(split_model(model)[1])[0]:
        raise UserError(
            f"train.freeze = {patterns} leaves nothing to train: name fewer layers"
        )
    return frozen


def _layer_decay(config: Config, model: Model) -> float | None:
    decay, steps = config.optimizer.layer_decay, len(model.pieces) - 1
    if decay is None and config.train.fine_tune and steps:
        return FIRST_PIECE_RATE ** (1 / steps)
    return decay
