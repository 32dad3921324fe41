"""Averages of the weights, which a run evaluates in the place of the weights.

After a step each moves towards the weights, `average += rate * (weights - average)`.
They differ in the rate, and in what the next step makes of the average.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxtrain.config import OptimizerConfig, TrainConfig
from jaxtrain.config.optimizer import SCHEDULE_FREE_NAMES

Memory = dict[str, jax.Array]
# Of schedule-free SGD and AdamW, the momentum and b1 of the authors' package.
SCHEDULE_FREE_BETA = 0.9
# Of the slow weights of Lookahead: alpha in the paper.
LOOKAHEAD_RATE = 0.5


class DoneStep(NamedTuple):
    """A step behind which an average moves.

    Attributes:
      taken: Number of the steps before this one that were not skipped, which the
        learning rate is a function of.
      learning_rate: Learning rate of this step; None where a line search finds it.
    """

    taken: jax.Array
    learning_rate: jax.Array | None


class Average:
    """An average of the weights.

    Attributes:
      of_batches: Whether the batch-norm statistics of the average are those of each
        batch, averaged with the same rates. If not, `model_state` is that of the
        weights, and an evaluation computes the statistics anew before.
    """

    of_batches = False

    def create(self, dtype: Any) -> Memory:
        """Return what is remembered from step to step, floats of `dtype`."""
        return {}

    def rate(self, memory: Memory, done: DoneStep) -> tuple[jax.Array, Memory]:
        """Return how far the average moves after a step, 0 to 1, and the new memory.

        Args:
          memory: What is remembered.
          done: Step that was just completed.
        """
        raise NotImplementedError

    def gradient_weights(self, params: Any, average: Any) -> Any:
        """Return the weights at which a step computes the gradients."""
        return params

    def next_weights(self, params: Any, average: Any, rate: jax.Array) -> Any:
        """Return the weights after a step by which the average moved by `rate`."""
        return params

    def recomputes(self, step: int) -> bool:
        """Whether statistics are computed anew for an evaluation.

        Args:
          step: Number of completed steps, those that were skipped included.
        """
        return True


@dataclass(frozen=True)
class Ema(Average):
    """The moving average: `average = decay * average + (1 - decay) * weights`.

    The decay at step t is min(decay, (1 + t) / (10 + t)), as in TensorFlow's
    ExponentialMovingAverage: faster at first, when the average is young.
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

    The mean, with equal weights, of the weights after `start` steps, and at the end of
    each cycle from there on; before, the weights themselves. Steps that are skipped are
    no part of a cycle, as they are none of the learning rate's.

    Attributes:
      start: Steps before the first cycle.
      cycle: Steps of a cycle.
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
        # After skipped steps there may be no model yet: the statistics of the weights
        # themselves are then computed anew.
        return step >= self.start


@dataclass(frozen=True)
class ScheduleFree(Average):
    """Schedule-free learning (Defazio et al. 2024, arXiv:2405.15682).

    The weights are the paper's z, the average is x, and the gradients are those at y,
    between both. z and x are kept, and y is computed: with y and z, as in optax, x
    would lose what y loses to rounding in bfloat16. A step weighs as the square of the
    largest learning rate so far, as in the authors' package.

    Attributes:
      beta: Part of the average in y.
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
        # A warm-up begins at 0.
        rate = jnp.where(total > 0, weight / jnp.where(total > 0, total, 1), 0)
        return rate, {"largest_rate": largest, "weight_sum": total}

    def gradient_weights(self, params: Any, average: Any) -> Any:
        def between(z: jax.Array, x: jax.Array) -> jax.Array:
            return (x + (1 - self.beta) * (z.astype(x.dtype) - x)).astype(z.dtype)

        return jax.tree.map(between, params, average)


@dataclass(frozen=True)
class Lookahead(Average):
    """The slow weights of Lookahead (Zhang et al. 2019, arXiv:1907.08610).

    After every `period` steps they move towards the weights, which then begin anew
    from there. The state of the optimizer stays as it is.

    Attributes:
      period: Steps from one move to the next: k in the paper.
      slow_rate: How far they move: alpha in the paper.
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
    """Return the average that a run evaluates; None evaluates the weights.

    Args:
      optimizer: Section of the optimizer.
      train: Section of the training.
      swa: Start and cycle of stochastic weight averaging, in steps.
    """
    if swa is not None:
        return Swa(*swa)
    if train.ema_decay is not None:
        return Ema(train.ema_decay)
    if optimizer.name in SCHEDULE_FREE_NAMES:
        beta = getattr(optimizer, SCHEDULE_FREE_NAMES[optimizer.name])
        return ScheduleFree(SCHEDULE_FREE_BETA if beta is None else beta)
    if optimizer.lookahead_steps is not None:
        return Lookahead(optimizer.lookahead_steps, LOOKAHEAD_RATE)
    return None
