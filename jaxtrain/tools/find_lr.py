"""A learning rate for a run: the range test of Smith (2017, arXiv:1506.01186).

The rate rises from step to step by the same factor; where the loss falls fastest is a
good one. The rules that choose it are those of fastai's `lr_find`.
"""

import contextlib
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxtrain import keys
from jaxtrain.config import Config, ParallelConfig, TrainConfig
from jaxtrain.data import loader
from jaxtrain.errors import UserError
from jaxtrain.parallel import sharding
from jaxtrain.run.pretrained import first_weights, plan_start
from jaxtrain.run.programs import make_programs
from jaxtrain.run.setup import build_setup
from jaxtrain.training.schedules import Schedule

# Weight of the past in the smoothed loss, and how far above its least it ends the test.
SMOOTHING = 0.98
DIVERGED = 4.0
# Of the steps, the first tenth and the last five tell nothing.
SKIPPED_PART, SKIPPED_END = 10, 5
# Fewer leave the rules nothing to choose from.
MIN_STEPS = 20


@dataclass(frozen=True, kw_only=True)
class RangeTest:
    """The loss at rising learning rates; all (steps,), float64.

    Attributes:
      rates: learning rates.
      losses: of the batches.
      smoothed: mean of the losses so far, the last ones weighing most.
    """

    rates: np.ndarray
    losses: np.ndarray
    smoothed: np.ndarray


def rising(start: float, end: float, num_steps: int) -> Schedule:
    """Return the learning rate of each step, from `start` to `end`."""
    factor = end / start

    def schedule(step: ArrayLike) -> jax.Array:
        part = jnp.asarray(step, jnp.float32) / (num_steps - 1)
        return jnp.asarray(start * factor**part, jnp.float32)

    return schedule


def range_test(
    config: Config, *, start: float, end: float, num_steps: int
) -> RangeTest:
    """Train for some steps while the learning rate rises; nothing is kept.

    It ends early once the smoothed loss is four times its least, or a step is not
    finite.

    Args:
      config: Config of the run; its schedule and its length do not count.
      start: Learning rate of the first step.
      end: Learning rate of the last step.
      num_steps: Number of steps.

    Raises:
      UserError: the config does not fit, or the loss is bad from the beginning.
    """
    schedule = rising(start, end, num_steps)
    setup = build_setup(_shortened(config, num_steps), schedule)
    programs, mesh = make_programs(setup), setup.mesh
    weights, _ = first_weights(setup, programs, plan_start(setup))
    state = programs.begin(weights)
    everywhere = sharding.replicated(mesh)
    root = jax.device_put(keys.root_key(config.seed), everywhere)
    data, batch_size = setup.config.data, setup.config.data.batch_size
    batches = loader.train_batches(
        data, programs.train_set, mesh, programs.order, 0, num_steps
    )
    losses: list[float] = []
    rates: list[float] = []
    smoother = Smoother()
    feed = loader.feed(batches, setup.timetable.call_sizes(0, 1), mesh, batch_size)
    with contextlib.closing(feed):
        for _, batch in feed:
            state, metrics = programs.train_at(0)(
                state, root, programs.train_set.on_device, batch
            )
            rate, loss = (float(metrics[n][0]) for n in ("learning_rate", "loss"))
            if not np.isfinite(loss) or metrics["skipped"][0]:
                break
            rates.append(rate)
            losses.append(loss)
            if smoother.add(loss) > DIVERGED * smoother.least:
                break
    if len(losses) < MIN_STEPS:
        raise UserError(
            f"the loss was bad after {len(losses)} steps, at a learning rate of "
            f"{rates[-1] if rates else start:g}: begin lower, with --start"
        )
    return RangeTest(
        rates=np.array(rates),
        losses=np.array(losses),
        smoothed=np.array(smoother.values),
    )


def _shortened(config: Config, num_steps: int) -> Config:
    """Return a config of so many steps, whatever else its run would do meanwhile."""
    if config.optimizer.learning_rate is None:
        raise UserError(
            f"optimizer.name = {config.optimizer.name!r} is set to find its steps by "
            "itself: there is no learning rate to find"
        )
    units = ("epochs", "steps", "examples", "fraction", "factor")
    never = dict.fromkeys(f"warmup_{unit}" for unit in units)
    length = {"epochs": None, "examples": None, "steps": num_steps}
    sizes: dict[str, Any] = {"progressive_sizes": ()}
    return dataclasses.replace(
        config,
        optimizer=dataclasses.replace(config.optimizer, **never),
        train=dataclasses.replace(
            config.train,
            **length,
            **_every_loss(),
            stop_after_steps=None,
            steps_per_call=1,
        ),
        data=dataclasses.replace(config.data, **sizes),
        parallel=ParallelConfig(batch_norm=config.parallel.batch_norm),
    )


def _every_loss() -> dict[str, Any]:
    """Return the fields of a run that looks for no loss spikes.

    At rising rates a loss above those before is what is looked for: a skipped step
    would hide it, and end the test.
    """
    names = ("spike_sigma", "spike_window", "on_spike")
    defaults = {field.name: field.default for field in dataclasses.fields(TrainConfig)}
    return {name: defaults[name] for name in names}


class Smoother:
    """The mean of losses, weighted by powers of `SMOOTHING`, without a bias to 0."""

    def __init__(self) -> None:
        self._sum, self.values = 0.0, list[float]()

    @property
    def least(self) -> float:
        return min(self.values)

    def add(self, loss: float) -> float:
        """Take the next loss; return the mean."""
        self._sum = SMOOTHING * self._sum + (1 - SMOOTHING) * loss
        self.values.append(self._sum / (1 - SMOOTHING ** (len(self.values) + 1)))
        return self.values[-1]


def suggest(test: RangeTest) -> dict[str, float]:
    """Return the learning rate that each rule suggests."""
    part = slice(len(test.rates) // SKIPPED_PART, -SKIPPED_END)
    rates, losses = test.rates[part], test.smoothed[part]
    return {rule: float(choose(rates, losses)) for rule, choose in RULES.items()}


def valley(rates: np.ndarray, losses: np.ndarray) -> float:
    """Return the rate at two thirds of the way down the longest valley.

    The valley is the longest row of steps, not all of which need to follow each other,
    with a loss below that of the one before.
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
    """Return the rate where the loss falls fastest by the logarithm of the rate."""
    slopes = np.diff(losses) / np.diff(np.log(rates))
    return rates[int(np.argmin(slopes))]


def minimum(rates: np.ndarray, losses: np.ndarray) -> float:
    """Return a tenth of the rate of the least loss."""
    return rates[int(np.argmin(losses))] / 10


# The first is what is recommended.
RULES: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "valley": valley,
    "steep": steep,
    "minimum": minimum,
}
