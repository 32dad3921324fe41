"""Learning-rate schedules: functions of the optimizer's step count."""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from jaxtrain.config import OptimizerConfig, schedule as parts
from jaxtrain.errors import UserError
from jaxtrain.registry import Row, call_row
from jaxtrain.training import SCHEDULES

Schedule = Callable[[ArrayLike], jax.Array]
# Given a Python number, an optax schedule may return a Python number; a `Schedule`
# always returns an array.
Rate = optax.Schedule

# Defaults of one-cycle schedules in fastai and PyTorch: start at 1/25 of the peak, and
# rise during the first 30 % of the run.
ONE_CYCLE_START_FACTOR = 1 / 25
ONE_CYCLE_RISE = 0.3
# Default milestones of the step schedule.
MILESTONES = (0.5, 0.75)
# Final learning rate of a cycle of fastai's `fine_tune`, relative to the cycle's peak.
FINE_TUNE_END_FACTOR = 1e-5


def make_schedule(
    config: OptimizerConfig, *, total_steps: int, warmup_steps: int
) -> Schedule:
    """Create the learning-rate schedule, a function `step -> float32 scalar`.

    The first step is 0. A decay ends at step `total_steps`, one after the last step.
    Afterwards the learning rate is constant.

    Args:
      config: Config section of the optimizer, with schedule and peak learning rate.
      total_steps: Number of steps of the run.
      warmup_steps: Number of linear warm-up steps, included in `total_steps`. For
        one_cycle, the number of steps until the peak.

    Raises:
      UserError: Unknown name, missing learning rate, too long a warm-up, or an option
        out of range or without effect on the schedule.
    """
    if warmup_steps >= total_steps:
        fraction = config.warmup_fraction
        given = ""
        if fraction is not None:
            given = f"optimizer.warmup_fraction = {fraction:g}: "
        raise UserError(
            f"{given}the warm-up of {warmup_steps} steps must be shorter than the run "
            f"of {total_steps} steps; lengthen the run, or set a shorter warm-up, such "
            "as --optimizer.warmup-fraction 0.1"
        )
    peak = config.learning_rate
    if peak is None:
        raise UserError(
            "optimizer.learning_rate is not set; set the peak learning rate"
        )
    args = peak, total_steps, warmup_steps
    schedule = call_row(SCHEDULES, config.schedule, "optimizer.schedule", *args)

    def learning_rate(step: ArrayLike) -> jax.Array:
        return jnp.asarray(schedule(jnp.asarray(step)), jnp.float32)

    return learning_rate


def make_two_cycles(peak: float, first_steps: int, total_steps: int) -> Schedule:
    """Create the schedule of fastai's `fine_tune` (arXiv:2002.04688).

    In the first cycle, which trains only the head, the learning rate rises from 1/25 of
    `peak` to `peak` in the first 99 % of the steps. In the second cycle it rises from
    1/10 to 1/2 of `peak` in the first 30 % of the steps. Each cycle rises and falls
    along cosines, and ends at 1e-5 of its maximum (the defaults of fastai 2.7). The
    momentum is not cycled.

    Args:
      peak: Peak learning rate of the first cycle.
      first_steps: Number of steps of the first cycle.
      total_steps: Number of steps of both cycles together.
    """

    def cycle(part: jax.Array, peak: float, *, start: float, rise: float) -> jax.Array:
        end = FINE_TUNE_END_FACTOR
        up = jnp.clip(part / rise, 0, 1)
        down = jnp.clip((part - rise) / (1 - rise), 0, 1)
        rising = start + (1 - start) * (1 - jnp.cos(jnp.pi * up)) / 2
        falling = end + (1 - end) * (1 + jnp.cos(jnp.pi * down)) / 2
        return jnp.asarray(peak * jnp.where(part < rise, rising, falling), jnp.float32)

    def learning_rate(step: ArrayLike) -> jax.Array:
        step = jnp.asarray(step, jnp.float32)
        one = cycle(step / first_steps, peak, start=1 / 25, rise=0.99)
        part = (step - first_steps) / (total_steps - first_steps)
        other = cycle(part, peak / 2, start=1 / 5, rise=0.3)
        return jnp.where(step < first_steps, one, other)

    return learning_rate


def with_constant_end(schedule: Schedule, start: int, rate: float) -> Schedule:
    """Replace a schedule with the constant `rate` from step `start` on."""

    def learning_rate(step: ArrayLike) -> jax.Array:
        step = jnp.asarray(step)
        return jnp.where(step < start, schedule(step), rate).astype(jnp.float32)

    return learning_rate


# The following functions take the peak learning rate, the number of steps after the
# warm-up and the total number of steps, and return the schedule after the warm-up.


def _constant(peak: float, steps: int, total: int) -> Rate:
    return optax.constant_schedule(peak)


def _plateau(peak: float, steps: int, total: int, factor: float, patience: int) -> Rate:
    """Constant learning rate, which `jaxtrain.trainer.plateau` reduces."""
    del factor, patience
    return _constant(peak, steps, total)


def _cosine(peak: float, steps: int, total: int, end_factor: float) -> Rate:
    """Cosine decay (Loshchilov & Hutter 2016, arXiv:1608.03983)."""
    return optax.cosine_decay_schedule(peak, steps, end_factor)


def _cosine_restarts(
    peak: float, steps: int, total: int, cycles: int, end_factor: float
) -> Rate:
    """Cosine decay with warm restarts (SGDR, arXiv:1608.03983, equation 5).

    Each cycle starts at the peak. All cycles have equal length (T_mult is 1).
    """
    ends = [round(steps * part / cycles) for part in range(cycles + 1)]
    lengths = [end - start for start, end in itertools.pairwise(ends)]
    if 0 in lengths:
        raise UserError(
            f"optimizer.schedule.cycles = {cycles}: each cycle needs at least one of "
            f"the {steps} steps after the warm-up; set fewer cycles"
        )
    decays = [optax.cosine_decay_schedule(peak, n, end_factor) for n in lengths]
    return optax.join_schedules(decays, ends[1:-1])


def _linear(peak: float, steps: int, total: int, end_factor: float) -> Rate:
    return optax.linear_schedule(peak, peak * end_factor, steps)


def _polynomial(
    peak: float, steps: int, total: int, power: float, end_factor: float
) -> Rate:
    """Polynomial decay (power 2 in You et al. 2017, arXiv:1708.03888)."""
    end = peak * end_factor

    # Rounding can make the base of optax's power, 1 - count / steps, negative.
    def rate(count: ArrayLike) -> jax.Array:
        left = (steps - jnp.minimum(jnp.asarray(count), steps)) / steps
        return end + (peak - end) * left**power

    return rate


def _warmup_stable_decay(
    peak: float,
    steps: int,
    total: int,
    decay_fraction: float,
    end_factor: float,
) -> Rate:
    """Constant, then linear decay (Haegele et al. 2024, arXiv:2405.18392)."""
    decay_steps = max(1, round(decay_fraction * total))
    if decay_steps > steps:
        raise UserError(
            f"optimizer.schedule.decay_fraction = {decay_fraction}: the decay starts "
            f"at step {total - decay_steps}, within the warm-up of {total - steps} "
            "steps; set a smaller fraction"
        )
    end = peak * end_factor
    return optax.linear_schedule(peak, end, decay_steps, steps - decay_steps)


def _step(
    peak: float,
    steps: int,
    total: int,
    milestones: tuple[float, ...] | None,
    every: float | None,
    factor: float,
) -> Rate:
    """Step decay: multiply by `factor` at milestones, given as fractions of the run.

    With `every`, multiply at each multiple of this fraction instead (Tan & Le 2019,
    arXiv:1905.11946). Multiples within the warm-up take effect at the end of the
    warm-up.
    """
    warmup_steps = total - steps
    if every is not None:
        # The period is not rounded to 0 steps: in a very short run it is a fraction of
        # a step.
        period = round(every * total) or every * total

        def rate(count: ArrayLike) -> jax.Array:
            step = jnp.minimum(jnp.asarray(count) + warmup_steps, total)
            return jnp.asarray(peak * factor ** (step // period))

        return rate
    milestones = MILESTONES if milestones is None else milestones
    drops = [round(milestone * total) - warmup_steps for milestone in milestones]
    if drops and drops[0] < 0:
        raise UserError(
            f"optimizer.schedule.milestones = {milestones}: the first is step "
            f"{drops[0] + warmup_steps}, within the warm-up of {warmup_steps} steps; "
            "set later milestones"
        )
    levels = [peak * factor**k for k in range(len(drops) + 1)]
    return optax.join_schedules([*map(optax.constant_schedule, levels)], drops)


def _exponential(peak: float, steps: int, total: int, end_factor: float) -> Rate:
    """Exponential decay, to `end_factor` times the peak at the end of the run."""
    return optax.exponential_decay(peak, steps, end_factor, end_value=peak * end_factor)


def _after_warm_up(follow: Callable[..., Rate], kind: type) -> Row:
    """Add a linear warm-up to a schedule; return the value for `SCHEDULES`.

    The warm-up rises to the peak from 0, as in He et al. (2018, arXiv:1812.01187). To
    start from the learning rate for a batch size of 256, as in Goyal et al. (2017,
    arXiv:1706.02677), set `warmup_factor` to 256 / batch size.
    """

    def build(
        peak: float, total: int, warmup: int, warmup_factor: float, **options: Any
    ) -> Rate:
        rise = optax.linear_schedule(peak * warmup_factor, peak, warmup)
        then = follow(peak, total - warmup, total, **options)
        return optax.join_schedules([rise, then], [warmup])

    return Row(build, kind)


def _one_cycle(peak: float, total: int, warmup: int, end_factor: float) -> Rate:
    """One-cycle schedule: cosine rise from peak / 25, cosine decay (arXiv:1708.07120).

    The rise takes `warmup` steps, or 30 % of the run if `warmup` is 0. The momentum is
    not cycled.
    """
    rise_steps = warmup or round(ONE_CYCLE_RISE * total)
    return optax.piecewise_interpolate_schedule(
        "cosine",
        peak * ONE_CYCLE_START_FACTOR,
        {rise_steps: 1 / ONE_CYCLE_START_FACTOR, total: end_factor},
    )


# Values of `jaxtrain.training.SCHEDULES`.
CONSTANT = _after_warm_up(_constant, parts.ConstantSchedule)
COSINE = _after_warm_up(_cosine, parts.CosineSchedule)
COSINE_RESTARTS = _after_warm_up(_cosine_restarts, parts.CosineRestartsSchedule)
LINEAR = _after_warm_up(_linear, parts.LinearSchedule)
POLYNOMIAL = _after_warm_up(_polynomial, parts.PolynomialSchedule)
WARMUP_STABLE_DECAY = _after_warm_up(
    _warmup_stable_decay, parts.WarmupStableDecaySchedule
)
STEP = _after_warm_up(_step, parts.StepSchedule)
EXPONENTIAL = _after_warm_up(_exponential, parts.ExponentialSchedule)
ONE_CYCLE = Row(_one_cycle, parts.OneCycleSchedule)
PLATEAU = _after_warm_up(_plateau, parts.PlateauSchedule)
