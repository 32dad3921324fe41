"""The learning rate of fastai's `fine_tune` (arXiv:2002.04688): two cycles."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from jaxtrain.training.schedules import Schedule

# Of its peak, where each cycle ends.
END = 1e-5


def make_two_cycles(peak: float, first_steps: int, total_steps: int) -> Schedule:
    """Return the learning rate of fastai's `fine_tune`, as a function of the step.

    The first cycle, while the head alone is trained, rises from 1/25 of the peak over
    99 % of its steps; the second, to half of that peak, from 1/5 of its own over 30 %.
    Both rise and fall along cosines, down to 1e-5 of their peaks (the defaults of
    fastai 2.7). The momentum is not cycled.

    Args:
      peak: of the first cycle.
      first_steps: its length.
      total_steps: of both.
    """

    def learning_rate(step: ArrayLike) -> jax.Array:
        step = jnp.asarray(step, jnp.float32)
        one = _cycle(step / first_steps, peak, start=1 / 25, rise=0.99)
        part = (step - first_steps) / (total_steps - first_steps)
        other = _cycle(part, peak / 2, start=1 / 5, rise=0.3)
        return jnp.where(step < first_steps, one, other)

    return learning_rate


def _cycle(part: jax.Array, peak: float, *, start: float, rise: float) -> jax.Array:
    """Return the rate at `part` of a cycle, in 0..1, that starts at `start * peak`."""
    up = jnp.clip(part / rise, 0, 1)
    down = jnp.clip((part - rise) / (1 - rise), 0, 1)
    rising = start + (1 - start) * (1 - jnp.cos(jnp.pi * up)) / 2
    falling = END + (1 - END) * (1 + jnp.cos(jnp.pi * down)) / 2
    return jnp.asarray(peak * jnp.where(part < rise, rising, falling), jnp.float32)
