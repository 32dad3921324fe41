"""Detection of loss spikes inside the compiled step.

The statistics are part of the state, so that a resumed run detects the same spikes.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxtrain.training.state import TrainState, with_extra
from jaxtrain.training.transforms.base import (
    Extra,
    Metrics,
    StepContext,
    StepTransform,
)

# Smallest standard deviation, relative to the mean, so that rounding of a nearly
# constant loss is not detected as a spike.
MIN_DEVIATION = 1e-3


@dataclass(frozen=True, kw_only=True)
class SpikeDetector(StepTransform):
    """Detects loss spikes with an exponentially weighted mean and standard deviation.

    The limit is the mean plus `sigma` standard deviations. The statistics use losses
    clipped to the limit, so that a spike has little effect and a loss that stays higher
    is accepted after some steps (Gelper, Fried and Croux 2010, Robust forecasting with
    exponential and Holt-Winters smoothing, J. Forecasting 29). While the loss falls,
    the mean lags behind the loss, so the limit is too high rather than too low.

    Attributes:
      sigma: Number of standard deviations from the mean to the limit.
      window: Span of the exponential weights in steps: the weight of a new loss is
        2 / (window + 1).
    """

    sigma: float
    window: int

    name = "spikes"

    def create(self) -> Extra:
        """Create the initial statistics, scalars, with an infinite `limit`."""
        return {
            "count": jnp.int32(0),
            "mean": jnp.float32(0),
            "variance": jnp.float32(0),
            "limit": jnp.float32(jnp.inf),
        }

    def follow(self, stats: Extra, loss: jax.Array) -> Extra:
        """Update the statistics with a finite loss.

        `limit` remains infinite for the first `window / 2` losses.
        """
        count = stats["count"] + 1
        # All losses have equal weight during the first half window (Finch 2009,
        # Incremental calculation of weighted mean and variance).
        weight = jnp.maximum(2 / (self.window + 1), 1 / count.astype(jnp.float32))
        loss = loss.astype(jnp.float32)
        change = jnp.minimum(loss, stats["limit"]) - stats["mean"]
        mean = stats["mean"] + weight * change
        variance = (1 - weight) * (stats["variance"] + weight * change**2)
        deviation = jnp.maximum(jnp.sqrt(variance), MIN_DEVIATION * jnp.abs(mean))
        limit = jnp.where(
            2 * count >= self.window, mean + self.sigma * deviation, jnp.inf
        )
        return {"count": count, "mean": mean, "variance": variance, "limit": limit}

    def init(self, params: object, model_state: object) -> Extra:
        return self.create()

    def accepts(self, extra: Extra, context: StepContext) -> jax.Array:
        return ~_is_spike(extra, context)

    def after(
        self, new: TrainState, old: TrainState, context: StepContext
    ) -> tuple[TrainState, Metrics]:
        stats, finite = old.extras[self.name], context.finite
        followed = self.follow(stats, context.loss)
        kept = jax.tree.map(lambda n, o: jnp.where(finite, n, o), followed, stats)
        metrics = {
            "spike": (finite & _is_spike(stats, context)).astype(jnp.int32),
            "loss_limit": stats["limit"],
        }
        return with_extra(new, self.name, kept), metrics


def _is_spike(stats: Extra, context: StepContext) -> jax.Array:
    return context.loss > stats["limit"]
