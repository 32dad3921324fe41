"""Phases of a run; each has frozen layers, optimizer, augmentation and image size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import optax

from jaxtrain.config import AugmentConfig
from jaxtrain.config.optimizer import LINE_SEARCH
from jaxtrain.errors import UserError
from jaxtrain.models.base import Model
from jaxtrain.models.batch_norm import momenta
from jaxtrain.models.layer_paths import find_layers
from jaxtrain.trainer.timetable import Timetable
from jaxtrain.trainer.transforms import RunFacts, make_transforms
from jaxtrain.training.clipping import with_clipping
from jaxtrain.training.frozen import (
    NOTHING,
    Frozen,
    trained_only,
    two_phases,
    with_told_rate,
)
from jaxtrain.training.optimizers import make_optimizer
from jaxtrain.training.phase import Phase
from jaxtrain.training.rates import make_rates, with_rates
from jaxtrain.training.schedules import Schedule
from jaxtrain.training.state import split_model

if TYPE_CHECKING:
    from jaxtrain.config import Config

T = TypeVar("T")
Tx = optax.GradientTransformationExtraArgs

# Ratio of the learning rates of a model's first and last piece, in `train.fine_tune`.
FIRST_PIECE_RATE = 1 / 100


def build_phases(
    config: Config,
    timetable: Timetable,
    model: Model,
    schedule: Schedule | None,
    kernel_order: tuple[int, ...] | None = None,
    *,
    sets_rate: bool = False,
) -> tuple[Phase, ...]:
    """Create the phases in order; the train state has one structure in all phases.

    Args:
      config: Config of the run.
      timetable: Timetable of the run, which has the first step of each phase.
      model: Abstract model of the run.
      schedule: Learning-rate schedule; None with a line search.
      kernel_order: Memory order of kernel dims, outermost first; None for row-major.
      sets_rate: Whether a callback scales the learning rate.

    Raises:
      UserError: The optimizer, learning rates or frozen layers are invalid for the
        model.
    """
    frozen = find_frozen(config, model)
    start = timetable.unfreeze_step
    optimizer, make = config.optimizer, partial(make_optimizer, config.optimizer)
    rates = make_rates(model, _layer_decay(config, model))

    def finished(tx: Tx) -> Tx:
        clipped = with_clipping(tx, optimizer.clip_norm, optimizer.clip_ratio)
        return with_rates(clipped, rates)

    tx = make(schedule)
    phase = Phase(
        tx=finished(tx),
        schedule=schedule,
        transforms=make_transforms(
            RunFacts(
                config=config,
                timetable=timetable,
                model=model,
                never_trained=frozen if start is None else NOTHING,
                kernel_order=kernel_order,
                sets_rate=sets_rate,
            )
        ),
        momenta=momenta(model),
        num_micro=config.train.accumulate_steps,
        line_search=optimizer.name == LINE_SEARCH,
        remat=config.train.remat,
    )
    phases = {0: phase}
    if start is not None:
        first, tx = two_phases(tx, frozen, make)
        # Each phase of `fine_tune` has a separate learning-rate cycle.
        rate_from = start if config.train.fine_tune else 0
        phases = {
            0: replace(phase, tx=finished(first), frozen=frozen),
            start: replace(phase, tx=finished(tx), rate_from=rate_from),
        }
    elif frozen.layers:
        tx = trained_only(tx, frozen)
        phases = {0: replace(phase, tx=finished(tx), frozen=frozen)}
    if timetable.fix_step is not None:
        fixed_tx = finished(with_told_rate(tx, make))
        phases = _with_fixed_statistics(phases, timetable.fix_step, fixed_tx)
    sizes = dict(timetable.image_sizes) or {0: None}
    augments = {0: config.data.augment}
    if timetable.close_mosaic_step is not None:
        # Reset `close_mosaic` too, because the config check rejects it without mosaics.
        plain = AugmentConfig()
        augments[timetable.close_mosaic_step] = replace(
            config.data.augment,
            mosaic=plain.mosaic,
            close_mosaic=plain.close_mosaic,
        )
    return tuple(
        replace(
            _value_at(phases, step),
            start=step,
            augment=_value_at(augments, step),
            image_size=_value_at(sizes, step),
        )
        for step in sorted(phases.keys() | augments.keys() | sizes.keys())
    )


def _with_fixed_statistics(
    phases: dict[int, Phase], start: int, tx: Tx
) -> dict[int, Phase]:
    """Fix batch-norm statistics and quantizer ranges from a step on.

    From `start` on, the schedule is evaluated at step `start` or later, even if
    skipped steps make the optimizer's step count smaller.

    Args:
      phases: Phases by first step.
      start: First step with fixed statistics.
      tx: Optimizer whose `update` takes `learning_rate`; replaces optimizers that
        evaluate the schedule at their step count.
    """

    def fixed(phase: Phase) -> Phase:
        if phase.schedule is not None:
            if phase.rate_from is None:
                phase = replace(phase, tx=tx)
            phase = replace(phase, rate_from=max(start, phase.rate_from or 0))
        return replace(phase, frozen=replace(phase.frozen, statistics=True))

    at = phases | {start: _value_at(phases, start)}
    return {step: phase if step < start else fixed(phase) for step, phase in at.items()}


def _value_at(changes: Mapping[int, T], step: int) -> T:
    """Value at a step; `changes` maps first steps to values."""
    return changes[max(start for start in changes if start <= step)]


def find_frozen(config: Config, model: Model) -> Frozen:
    """Find the layers that are frozen in the first phase.

    Raises:
      UserError: A pattern matches no layer, or no layer is trainable.
    """
    patterns = config.train.first_frozen
    found = [find_layers(model, "train.freeze", pattern) for pattern in patterns]
    frozen = Frozen(frozenset().union(*found))
    if not frozen.partition(split_model(model)[1])[0]:
        raise UserError(
            f"train.freeze = {patterns} leaves no layer to train: name fewer layers"
        )
    return frozen


def _layer_decay(config: Config, model: Model) -> float | Mapping[str, float] | None:
    decay, steps = config.optimizer.layer_decay, len(model.pieces) - 1
    if decay is None and config.train.fine_tune and steps:
        return FIRST_PIECE_RATE ** (1 / steps)
    return decay
