"""Weight averages, which evaluations use in place of the weights.

After each step `average += rate * (weights - average)`, with an averaging rate in 0..1.
Subclasses of `Average` define the rate, and whether the next step uses the average.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxtrain.config import OptimizerConfig, TrainConfig
from jaxtrain.config.optimizer import SCHEDULE_FREE_NAMES

Memory = dict[str, jax.Array]
# Step size of Lookahead's slow weights: alpha in the paper.
LOOKAHEAD_RATE = 0.5


class DoneStep(NamedTuple):
    """Data of a completed step, for `Average.rate`.

    Attributes:
      taken: Step count for the learning-rate schedule: number of earlier steps that
        were not skipped.
      learning_rate: Learning rate of this step; None with a line search.
    """

    taken: jax.Array
    learning_rate: jax.Array | None


class Average:
    """Base class of weight averages.

    Attributes:
      of_batches: Whether the batch-norm statistics of each batch are averaged, at the
        same rate as the weights. Otherwise `model_state` belongs to the current
        weights, and batch-norm statistics are recomputed before each evaluation.
    """

    of_batches = False

    def create(self, dtype: Any) -> Memory:
        """Create the initial averaging state, a dict of arrays of `dtype`."""
        return {}

    def rate(self, memory: Memory, done: DoneStep) -> tuple[jax.Array, Memory]:
        """Compute the averaging rate of a step, in 0..1, and the new averaging state.

        Args:
          memory: Averaging state before the step.
          done: Step that was just completed.
        """
        raise NotImplementedError

    def gradient_weights(self, params: Any, average: Any) -> Any:
        """Compute the weights at which a step evaluates the gradients."""
        return params

    def next_weights(self, params: Any, average: Any, rate: jax.Array) -> Any:
        """Compute the weights after a step that updated the average with `rate`."""
        return params

    def recomputes(self, step: int) -> bool:
        """Whether batch-norm statistics are recomputed before an evaluation.

        Args:
          step: Number of completed steps, including skipped ones.
        """
        return True


@dataclass(frozen=True)
class Ema(Average):
    """Exponential moving average: `average = decay * average + (1 - decay) * weights`.

    The decay at step t is min(decay, (1 + t) / (10 + t)), as in TensorFlow's
    ExponentialMovingAverage.
    """

    decay: float
    of_batches = True

    def rate(self, memory: Memory, done: DoneStep) -> tuple[jax.Array, Memory]:
        young = done.taken.astype(jnp.float32)
        return 1 - jnp.minimum(self.decay, (1 + young) / (10 + young)), memory

    def recomputes(self, step: int) -> bool:
        return False


@dataclass(frozen=True)
class Swa(Average):
    """Stochastic weight averaging (Izmailov et al. 2018, arXiv:1803.05407).

    The average is the mean of the weights at step `start` and after each later cycle.
    Before `start`, the average equals the weights. Skipped steps are not counted.

    Attributes:
      start: Number of steps before the first cycle.
      cycle: Number of steps per cycle.
    """

    start: int
    cycle: int

    def create(self, dtype: Any) -> Memory:
        return {"models": jnp.zeros((), dtype)}

    def rate(self, memory: Memory, done: DoneStep) -> tuple[jax.Array, Memory]:
        models, after = memory["models"], done.taken + 1 - self.start
        due = (after >= 0) & (after % self.cycle == 0)
        rate = jnp.where(due, 1 / (models + 1), jnp.where(after < 0, 1.0, 0.0))
        return rate, {"models": models + due.astype(models.dtype)}

    def recomputes(self, step: int) -> bool:
        # `step` includes skipped steps, so averaging may not have started yet. The
        # average then equals the weights, for which recomputed statistics are correct.
        return step >= self.start


@dataclass(frozen=True)
class ScheduleFree(Average):
    """Schedule-free learning (Defazio et al. 2024, arXiv:2405.15682).

    The weights are the paper's z, the average is x, and gradients are computed at y, an
    interpolation of z and x. optax stores y and z and derives x, which then inherits
    the bfloat16 rounding of y. Each step is weighted by the square of the largest
    learning rate so far, as in the authors' package.

    Attributes:
      beta: Weight of the average in y.
    """

    beta: float

    def create(self, dtype: Any) -> Memory:
        return {n: jnp.zeros((), dtype) for n in ("largest_rate", "weight_sum")}

    def rate(self, memory: Memory, done: DoneStep) -> tuple[jax.Array, Memory]:
        assert done.learning_rate is not None
        total = memory["weight_sum"]
        largest = jnp.maximum(memory["largest_rate"], done.learning_rate)
        largest = largest.astype(total.dtype)
        weight = largest**2
        total = total + weight
        # In the first step of a warm-up the learning rate, and hence `total`, is 0.
        rate = jnp.where(total > 0, weight / jnp.where(total > 0, total, 1), 0)
        return rate, {"largest_rate": largest, "weight_sum": total}

    def gradient_weights(self, params: Any, average: Any) -> Any:
        def between(z: jax.Array, x: jax.Array) -> jax.Array:
            return (x + (1 - self.beta) * (z.astype(x.dtype) - x)).astype(z.dtype)

        return jax.tree.map(between, params, average)


@dataclass(frozen=True)
class Lookahead(Average):
    """Lookahead optimization (Zhang et al. 2019, arXiv:1907.08610).

    Every `period` steps the slow weights (the average) move towards the fast weights,
    which then restart from the slow weights. The optimizer state is unchanged.

    Attributes:
      period: Number of steps between updates of the slow weights: k in the paper.
      slow_rate: Step size of the slow weights: alpha in the paper.
    """

    period: int
    slow_rate: float

    def rate(self, memory: Memory, done: DoneStep) -> tuple[jax.Array, Memory]:
        is_due = (done.taken + 1) % self.period == 0
        return jnp.where(is_due, self.slow_rate, 0.0), memory

    def next_weights(self, params: Any, average: Any, rate: jax.Array) -> Any:
        def begin(fast: jax.Array, slow: jax.Array) -> jax.Array:
            return jnp.where(rate > 0, slow.astype(fast.dtype), fast)

        return jax.tree.map(begin, params, average)


def make_average(
    optimizer: OptimizerConfig, train: TrainConfig, swa: tuple[int, int] | None = None
) -> Average | None:
    """Create the weight average of a run; None without averaging.

    Args:
      optimizer: Config section of the optimizer.
      train: Config section of the training.
      swa: Start and cycle length of stochastic weight averaging, in steps.
    """
    if swa is not None:
        return Swa(*swa)
    if train.ema_decay is not None:
        return Ema(train.ema_decay)
    if optimizer.name in SCHEDULE_FREE_NAMES:
        return ScheduleFree(getattr(optimizer, SCHEDULE_FREE_NAMES[optimizer.name]))
    if optimizer.lookahead_steps is not None:
        return Lookahead(optimizer.lookahead_steps, LOOKAHEAD_RATE)
    return None
