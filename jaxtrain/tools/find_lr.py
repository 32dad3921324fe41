"""Learning-rate range test (Smith 2017, arXiv:1506.01186).

The learning rate grows exponentially in a short training run. A learning rate is good
if the loss falls fast there. The suggestion rules are from fastai's `lr_find`.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from jaxtrain.config import Config, ParallelConfig, TrainConfig
from jaxtrain.config.optimizer import DISTANCE_NAMES
from jaxtrain.config.schedule import WarmupSchedule
from jaxtrain.errors import UserError
from jaxtrain.trainer.trainer import Trainer
from jaxtrain.training.schedules import Schedule

# Decay of the moving average of the loss, and ratio of this average to its minimum at
# which the range test ends.
SMOOTHING = 0.98
DIVERGED = 4.0
# The suggestion rules ignore the first tenth of the steps, and the last five steps.
SKIPPED_PART, SKIPPED_END = 10, 5
# Minimum number of steps for the suggestion rules.
MIN_STEPS = 20


@dataclass(frozen=True, kw_only=True)
class RangeTest:
    """Losses at increasing learning rates; all arrays are float64 (steps,).

    Attributes:
      rates: Learning rate of each step.
      losses: Loss of each batch.
      smoothed: Exponential moving average of the losses, bias-corrected.
    """

    rates: np.ndarray
    losses: np.ndarray
    smoothed: np.ndarray


def rising(start: float, end: float, num_steps: int) -> Schedule:
    """Return a learning-rate schedule that grows exponentially to `end`."""
    factor = end / start

    def schedule(step: ArrayLike) -> jax.Array:
        part = jnp.asarray(step, jnp.float32) / (num_steps - 1)
        return jnp.asarray(start * factor**part, jnp.float32)

    return schedule


def range_test(
    config: Config, *, start: float, end: float, num_steps: int
) -> RangeTest:
    """Train with an increasing learning rate, without saving anything.

    The test ends early if the smoothed loss exceeds four times its minimum, or if the
    loss or the gradients of a step are not finite.

    Args:
      config: Config of the run; its schedule and length are ignored.
      start: Learning rate of the first step.
      end: Learning rate of the last step.
      num_steps: Maximum number of steps.

    Raises:
      UserError: The config is invalid, or the test ended within `MIN_STEPS` steps.
    """
    schedule = rising(start, end, num_steps)
    trainer = Trainer(_shortened(config, num_steps), schedule=schedule)
    state = trainer.init()
    losses, rates = list[float](), list[float]()
    with contextlib.closing(trainer.batches()) as batches:
        for batch in batches:
            state, metrics = trainer.step(state, batch)
            rate, loss = (float(metrics[n][0]) for n in ("learning_rate", "loss"))
            if not np.isfinite(loss) or metrics["skipped"][0]:
                break
            rates.append(rate)
            losses.append(loss)
            smoothed = smooth(losses)
            if smoothed[-1] > DIVERGED * smoothed.min():
                break
    if len(losses) < MIN_STEPS:
        raise UserError(
            f"--start {start:g}: the loss diverged after {len(losses)} steps, at a "
            f"learning rate of {rates[-1] if rates else start:g}; decrease --start"
        )
    return RangeTest(
        rates=np.array(rates), losses=np.array(losses), smoothed=smooth(losses)
    )


def _shortened(config: Config, num_steps: int) -> Config:
    """Return a config for `num_steps` steps, without warm-up and early stop."""
    if config.optimizer.learning_rate is None:
        raise UserError(
            f"optimizer.name = {config.optimizer.name!r} has no learning rate, as a "
            "line search chooses the step size: choose another optimizer.name"
        )
    if config.optimizer.name in DISTANCE_NAMES:
        raise UserError(
            f"optimizer.name = {config.optimizer.name!r} estimates the learning rate: "
            "keep optimizer.learning_rate = 1, which only scales the estimate"
        )
    never = dict.fromkeys(f"warmup_{unit}" for unit in ("epochs", "steps", "fraction"))
    # The config check rejects a warm-up factor without a warm-up.
    schedule = config.optimizer.schedule
    if isinstance(schedule, WarmupSchedule):
        schedule = dataclasses.replace(schedule, warmup_factor=0.0)
    augment = dataclasses.replace(config.data.augment, close_mosaic=0.0)
    always: dict[str, Any] = {"progressive_sizes": (), "augment": augment}
    return dataclasses.replace(
        config,
        optimizer=dataclasses.replace(config.optimizer, schedule=schedule, **never),
        train=dataclasses.replace(
            config.train,
            epochs=None,
            steps=num_steps,
            stop_after_steps=None,
            profile_steps=None,
            steps_per_call=1,
            swa_start_epochs=None,
            swa_factor=None,
            # Skipped loss spikes would hide the divergence that the test looks for.
            spike_sigma=TrainConfig.spike_sigma,
        ),
        data=dataclasses.replace(config.data, **always),
        parallel=ParallelConfig(batch_norm=config.parallel.batch_norm),
    )


def smooth(losses: list[float]) -> np.ndarray:
    """Return the bias-corrected exponential moving average of the losses."""
    total, means = 0.0, []
    for num, loss in enumerate(losses, start=1):
        total = SMOOTHING * total + (1 - SMOOTHING) * loss
        means.append(total / (1 - SMOOTHING**num))  # Bias correction.
    return np.array(means)


def suggest(test: RangeTest) -> dict[str, float]:
    """Return the learning rate that each rule of `RULES` suggests."""
    part = slice(len(test.rates) // SKIPPED_PART, -SKIPPED_END)
    rates, losses = test.rates[part], test.smoothed[part]
    return {rule: float(choose(rates, losses)) for rule, choose in RULES.items()}


def valley(rates: np.ndarray, losses: np.ndarray) -> float:
    """Return the learning rate in the middle of the longest valley.

    The valley is the longest decreasing subsequence of the losses.
    """
    lengths = np.ones(len(losses), np.int64)
    for i in range(1, len(losses)):
        longer = lengths[:i][losses[:i] > losses[i]]
        lengths[i] += longer.max(initial=0)
    stop = int(np.argmax(lengths))
    length = int(lengths[stop])
    third = length / 3
    return rates[max(0, stop - length) + int(third) + int(third / 2)]


def steep(rates: np.ndarray, losses: np.ndarray) -> float:
    """Return the learning rate at the steepest descent of the loss over log(rate)."""
    slopes = np.diff(losses) / np.diff(np.log(rates))
    return rates[int(np.argmin(slopes))]


def minimum(rates: np.ndarray, losses: np.ndarray) -> float:
    """Return a tenth of the learning rate at the minimum loss."""
    return rates[int(np.argmin(losses))] / 10


# The first rule is the recommended one.
RULES: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "valley": valley,
    "steep": steep,
    "minimum": minimum,
}


def plot(path: Path, test: RangeTest, suggested: Mapping[str, float]) -> None:
    """Plot loss over learning rate, with the suggestions, to a PNG file.

    Args:
      path: Path of the file.
      test: Result of `range_test`.
      suggested: Result of `suggest`.
    """
    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.plot(test.rates, test.losses, color="0.8", label="loss of a batch")
    axes.plot(test.rates, test.smoothed, label="smoothed")
    for color, (rule, rate) in zip(("C1", "C2", "C3"), suggested.items(), strict=True):
        axes.axvline(rate, color=color, linestyle=":", label=f"{rule}: {rate:.1e}")
    axes.set_xscale("log")
    # Diverging losses would dominate the plot.
    axes.set_ylim(0, 1.5 * float(test.smoothed[:10].max()))
    axes.set_xlabel("learning rate")
    axes.set_ylabel("loss")
    axes.legend()
    figure.savefig(path, format="png", dpi=120)
