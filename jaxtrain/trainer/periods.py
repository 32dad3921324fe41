"""Length and periods of a run in steps, derived from the config."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from jaxtrain import config as config_lib
from jaxtrain.config import MAX_COUNT
from jaxtrain.config.optimizer import LINE_SEARCH
from jaxtrain.errors import UserError, counted
from jaxtrain.problems import Problem, ProblemList
from jaxtrain.trainer.learning_rate import build_schedule
from jaxtrain.trainer.timetable import Timetable

if TYPE_CHECKING:
    from jaxtrain.config import Config

# Names of groups of mutually exclusive fields.
LENGTH, EVALUATIONS, CHECKPOINTS = "length", "evaluations", "checkpoints"

# Quantizer ranges are fixed once the learning rate stays below the fraction `LOW_RATE`
# of its peak, but not before the fraction `FIX_FROM` of the run: at larger learning
# rates, models with fixed batch-norm statistics diverge (docs/decisions.md).
FIX_FROM, LOW_RATE = 0.75, 0.1


def make_timetable(
    config: Config, num_examples: int, *, has_validation: bool
) -> Timetable:
    """Create the timetable of a run, with epochs converted to steps.

    An epoch has `num_examples // batch_size` steps. The remaining examples, which
    differ between epochs, are dropped.

    Args:
      config: Config of the run.
      num_examples: Number of training examples.
      has_validation: Whether there is a validation split.

    Raises:
      UserError: The batch is larger than the training split, the step count overflows,
        `steps_per_call` exceeds every period, or a required validation split is
        missing. The message lists all problems.
    """
    data, train, save = config.data, config.train, config.checkpoint
    problems = ProblemList()
    problems.add(check_split_sizes(config, num_examples, has_validation=has_validation))
    per_epoch = num_examples // data.batch_size
    if per_epoch == 0:
        problems.stop()

    def steps(epochs: float | None, steps: int | None) -> int | None:
        if steps is not None:
            return steps
        return None if epochs is None else round(epochs * per_epoch)

    total = max(1, steps(train.epochs, train.steps) or 0)
    opt = config.optimizer
    warmup = steps(opt.warmup_epochs, opt.warmup_steps)
    if opt.warmup_fraction is not None:
        warmup = round(opt.warmup_fraction * total)
    eval_every = steps(train.eval_every_epochs, train.eval_every_steps)
    save_every = steps(save.every_epochs, save.every_steps)
    timetable = Timetable(
        num_examples=num_examples,
        batch_size=data.batch_size,
        steps_per_epoch=per_epoch,
        total_steps=total,
        warmup_steps=warmup or 0,
        eval_every_steps=_period(eval_every, per_epoch) if has_validation else None,
        save_every_steps=_period(save_every, per_epoch),
        log_every_steps=config.logging.every_steps,
        stop_after_steps=min(total, train.stop_after_steps or total),
        unfreeze_step=_unfreeze_step(config, per_epoch, total),
        image_sizes=problems.build(_image_sizes, data.training_sizes, total, per_epoch)
        or (),
        close_mosaic_step=problems.build(
            _close_step, data.augment.close_mosaic, total, per_epoch
        ),
        swa=problems.build(_swa, config, per_epoch, total),
    )
    problems.add(_check_length(config, total))
    problems.stop()
    timetable = replace(timetable, fix_step=_fix_step(config, timetable))
    _check_steps_per_call(config, timetable)
    return timetable


def _check_length(config: Config, total: int) -> Iterator[Problem]:
    if total > MAX_COUNT:
        length = _field_that_is_set(config, LENGTH)
        yield Problem(
            f"{length} = {config_lib.get(config, length)} makes {total:.3g} "
            f"steps: shorten the run to at most {MAX_COUNT} steps",
            (length,),
        )


def _swa(config: Config, per_epoch: int, total: int) -> tuple[int, int] | None:
    """Start and period of stochastic weight averaging, in steps."""
    epochs = config.train.swa_start_epochs
    if epochs is None:
        return None
    start = max(1, round(epochs * per_epoch))
    if start > total:
        raise UserError(
            f"train.swa_start_epochs = {epochs:g} ({start} steps) is longer than the "
            f"run ({total} steps): lengthen the run, or decrease train.swa_start_epochs"
        )
    return start, per_epoch


def _unfreeze_step(config: Config, per_epoch: int, total: int) -> int | None:
    """Step at which frozen layers are unfrozen; None if they are never unfrozen.

    With `train.fine_tune` the default is one epoch, or half of the run if the run has
    at most one epoch.
    """
    train = config.train
    if train.first_epochs is None:
        return None
    step = max(1, round(train.first_epochs * per_epoch))
    if step >= total > 1 and train.freeze_epochs is None:
        return total // 2
    return step


def _period(steps: int | None, default: int) -> int:
    """Return `steps`, at least 1; `default` if `steps` is None."""
    return default if steps is None else max(1, steps)


def _image_sizes(
    sizes: tuple[int, ...], total: int, per_epoch: int
) -> tuple[tuple[int, int], ...]:
    """Pairs (first step, image size in pixels), at epoch boundaries."""
    epochs = total / per_epoch
    starts = [round(i * epochs / len(sizes)) * per_epoch for i in range(len(sizes))]
    if starts != sorted(set(starts)) or any(start >= total for start in starts):
        raise UserError(
            f"data.progressive_sizes = {sizes}: {len(sizes)} sizes need at least "
            f"{len(sizes)} epochs, but the run has {epochs:g}; give fewer sizes"
        )
    return tuple(zip(starts, sizes, strict=True))


def _close_step(epochs: float, total: int, per_epoch: int) -> int | None:
    """Step at which mosaic augmentation ends; None if it never ends."""
    if not epochs:
        return None
    step = total - max(1, round(epochs * per_epoch))
    if step < 1:
        length = total / per_epoch
        raise UserError(
            f"data.augment.close_mosaic = {epochs:g}: the run has {length:g} epochs, "
            "so no epoch has mosaics; decrease data.augment.close_mosaic, or leave "
            "data.augment.mosaic out"
        )
    return step


def _fix_step(config: Config, timetable: Timetable) -> int | None:
    """First step with fixed quantizer ranges and batch-norm statistics, if any."""
    if config.model.quantize is None:
        return None
    total = timetable.total_steps
    step = max(1, round(_low_rate_start(config, timetable) * total))
    return None if step >= total else step


def _low_rate_start(config: Config, timetable: Timetable) -> float:
    """Fraction of the run after which the learning rate stays low; 1 if it does not."""
    schedule, peak = build_schedule(config, timetable), config.optimizer.learning_rate
    if schedule is None or peak is None or config.optimizer.schedule.name == "plateau":
        return 1.0
    parts = np.linspace(FIX_FROM, 1, 101)
    is_low = np.asarray(schedule(timetable.total_steps * parts) <= LOW_RATE * peak)
    num_low = np.argmin(np.append(is_low[::-1], False))
    return float(parts[-num_low]) if num_low else 1.0


def check_split_sizes(
    config: Config, num_examples: int, *, has_validation: bool
) -> Iterator[Problem]:
    """Check that the training split fills a batch, and that required splits exist.

    Args:
      config: Config of the run.
      num_examples: Number of training examples.
      has_validation: Whether there is a validation split.
    """
    yield from _check_batch_size(config, num_examples)
    if not has_validation:
        yield from _check_no_validation(config)


def _check_batch_size(config: Config, num_examples: int) -> Iterator[Problem]:
    size = config.data.batch_size
    if size > num_examples:
        yield Problem(
            f"data.batch_size = {size} is larger than the training split, which has "
            f"{num_examples} examples: use at most {num_examples}",
            ("data.batch_size",),
        )
    if config.optimizer.name == LINE_SEARCH and size != num_examples:
        yield Problem(
            "optimizer.name = 'lbfgs' requires full-batch training: set "
            f"data.batch_size to {num_examples}, the size of the training split",
            ("optimizer.name",),
        )


def _check_no_validation(config: Config) -> Iterator[Problem]:
    train = config.train
    if train.early_stop_patience:
        yield Problem(
            f"train.early_stop_patience = {train.early_stop_patience}: the "
            "run has no validation split to monitor; set data.validation_fraction or "
            "data.validation_split",
            ("train.early_stop_patience",),
        )
    if config.optimizer.schedule.name == "plateau":
        yield Problem(
            "optimizer.schedule = 'plateau': the run has no validation split to "
            "monitor; set data.validation_fraction or data.validation_split",
            ("optimizer.schedule",),
        )
    if any(_is_set(config, path) for path in config_lib.ONE_OF[EVALUATIONS]):
        yield Problem(
            "train.eval_every_epochs and train.eval_every_steps have no effect without "
            "a validation split: set data.validation_fraction or data.validation_split",
            config_lib.ONE_OF[EVALUATIONS],
        )


def _check_steps_per_call(config: Config, timetable: Timetable) -> None:
    """Raise UserError if `steps_per_call` exceeds every interval between events.

    Events are evaluations, saves, log lines and new phases (see `next_boundary`).
    """
    # All periods start at step 0, so no interval is longer than the first, except after
    # layers are unfrozen, mosaics end, or quantizer ranges are fixed.
    size, start = config.train.steps_per_call, timetable.unfreeze_step or 0
    close = timetable.close_mosaic_step or 0
    starts = (0, start, timetable.next_boundary(start), close)
    fix = timetable.fix_step or 0
    starts += (timetable.next_boundary(close), fix, timetable.next_boundary(fix))
    largest = max(timetable.next_boundary(start) - start for start in starts)
    if size <= largest:
        return
    periods = {
        "logging.every_steps": timetable.log_every_steps,
        _field_that_is_set(config, EVALUATIONS): timetable.eval_every_steps,
        _field_that_is_set(config, CHECKPOINTS): timetable.save_every_steps,
        "train.freeze_epochs": timetable.unfreeze_step,
        "data.augment.close_mosaic": timetable.close_mosaic_step,
        "model.quantize": timetable.fix_step,
        _field_that_is_set(config, LENGTH): timetable.total_steps,
    }
    shortest = [path for path, steps in periods.items() if steps == largest]
    raise UserError(
        f"train.steps_per_call = {size}: a call ends at the next log line, evaluation, "
        f"checkpoint or end of the run, so it has at most {counted(largest, 'step')} "
        f"({' and '.join(shortest)}); set at most {largest}, or increase "
        f"{' and '.join(shortest)}"
    )


def _field_that_is_set(config: Config, name: str) -> str:
    """Field that is set in a group of exclusive fields, or else the first field."""
    group = config_lib.ONE_OF[name]
    return next((path for path in group if _is_set(config, path)), group[0])


def _is_set(config: Config, path: str) -> bool:
    return config_lib.get(config, path) is not None
