"""Learning-rate schedules by name: the rate as a function of the optimizer's step."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from jaxtrain.config import OptimizerConfig
from jaxtrain.errors import UserError
from jaxtrain.registry import Row, call_row

Schedule = Callable[[ArrayLike], jax.Array]

# Smith's rule of thumb, as in fastai and PyTorch: start at 1/25 of the peak, and rise
# over the first 30 % of the run.
ONE_CYCLE_START_FACTOR = 1 / 25
ONE_CYCLE_RISE = 0.3


def make_schedule(
    config: OptimizerConfig, *, total_steps: int, warmup_steps: int
) -> Schedule:
    """Return the learning rate, float32, as a function of the step.

    Step 0 is the first of the run. What decays reaches its end at `total_steps`, one
    after the last step, and stays there.

    Args:
      config: name of the schedule, its options, and the peak.
      total_steps: steps of the whole run.
      warmup_steps: steps of the linear warm-up from 0, a part of the whole run; of
        one_cycle, the steps of its rise.

    Raises:
      UserError: the name is not known, there is no learning rate, the warm-up is too
        long, or an option has no effect on the schedule or is out of its range.
    """
    if warmup_steps >= total_steps:
        raise UserError(
            f"a warm-up of {warmup_steps} steps leaves nothing of a run of "
            f"{total_steps} steps: shorten optimizer.warmup_* or lengthen the run"
        )
    peak = config.learning_rate
    if peak is None:
        raise UserError("optimizer.learning_rate is not set: it is the schedule's peak")
    schedule = call_row(
        SCHEDULES, config, "optimizer.schedule", peak, total_steps, warmup_steps
    )

    def learning_rate(step: ArrayLike) -> jax.Array:
        return jnp.asarray(schedule(jnp.asarray(step)), jnp.float32)

    return learning_rate


def _warm_up(peak: float, warmup_steps: int, then: optax.Schedule) -> optax.Schedule:
    """Rise linearly from 0 to the peak (He et al. 2018, arXiv:1812.01187).

    Goyal et al. (2017, arXiv:1706.02677), whose idea it is, rise from the rate for 256
    examples.
    """
    rise = optax.linear_schedule(0.0, peak, warmup_steps)
    return optax.join_schedules([rise, then], [warmup_steps])


def _constant(peak: float, total_steps: int, warmup_steps: int) -> optax.Schedule:
    """Stay at the peak."""
    del total_steps
    return _warm_up(peak, warmup_steps, optax.constant_schedule(peak))


def _cosine(
    peak: float, total_steps: int, warmup_steps: int, *, end_factor: float = 0.0
) -> optax.Schedule:
    """Decay along half a cosine (Loshchilov & Hutter 2016, arXiv:1608.03983)."""
    decay_steps = total_steps - warmup_steps
    decay = optax.cosine_decay_schedule(peak, decay_steps, end_factor)
    return _warm_up(peak, warmup_steps, decay)


def _linear(
    peak: float, total_steps: int, warmup_steps: int, *, end_factor: float = 0.0
) -> optax.Schedule:
    """Decay linearly."""
    decay_steps = total_steps - warmup_steps
    decay = optax.linear_schedule(peak, peak * end_factor, decay_steps)
    return _warm_up(peak, warmup_steps, decay)


def _step(
    peak: float,
    total_steps: int,
    warmup_steps: int,
    *,
    milestones: tuple[float, ...] = (0.5, 0.75),
    step_factor: float = 0.1,
) -> optax.Schedule:
    """Multiply by `step_factor` at each milestone, a fraction of the whole run."""
    drops = [round(milestone * total_steps) - warmup_steps for milestone in milestones]
    if drops and drops[0] < 0:
        raise UserError(
            f"optimizer.milestones = {milestones}: the first is step "
            f"{drops[0] + warmup_steps}, within the warm-up of {warmup_steps} steps"
        )
    levels = [
        optax.constant_schedule(peak * step_factor**k) for k in range(len(drops) + 1)
    ]
    return _warm_up(peak, warmup_steps, optax.join_schedules(levels, drops))


def _exponential(
    peak: float, total_steps: int, warmup_steps: int, *, end_factor: float = 0.01
) -> optax.Schedule:
    """Decay by the same factor every step, to `end_factor` at the end."""
    if end_factor == 0:
        raise UserError(
            "optimizer.end_factor = 0: exponential never reaches it, set it above 0"
        )
    decay = optax.exponential_decay(
        peak, total_steps - warmup_steps, end_factor, end_value=peak * end_factor
    )
    return _warm_up(peak, warmup_steps, decay)


def _one_cycle(
    peak: float, total_steps: int, warmup_steps: int, *, end_factor: float = 1e-4
) -> optax.Schedule:
    """Rise from peak / 25 and decay, both along a cosine (Smith & Topin 2017,
    arXiv:1708.07120).

    The rise is the warm-up: over `warmup_steps`, or 30 % of the run if there are none.
    The momentum is not cycled.
    """
    rise_steps = warmup_steps or round(ONE_CYCLE_RISE * total_steps)
    return optax.piecewise_interpolate_schedule(
        "cosine",
        peak * ONE_CYCLE_START_FACTOR,
        {rise_steps: 1 / ONE_CYCLE_START_FACTOR, total_steps: end_factor},
    )


SCHEDULES = {
    "constant": Row(_constant),
    "cosine": Row(_cosine, ("end_factor",)),
    "linear": Row(_linear, ("end_factor",)),
    "step": Row(_step, ("milestones", "step_factor")),
    "exponential": Row(_exponential, ("end_factor",)),
    "one_cycle": Row(_one_cycle, ("end_factor",)),
}
