"""Guard against non-finite steps, and dynamic loss scaling for fp16."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxtrain.training.state import GUARD, TrainState, with_extra
from jaxtrain.training.transforms.base import (
    Extra,
    Metrics,
    StepContext,
    StepTransform,
)

# Dynamic loss scaling (Micikevicius et al. 2017, arXiv:1710.03740), with jmp's values.
INITIAL_SCALE = 2.0**15
SCALE_FACTOR = 2.0
GROWTH_PERIOD = 2000
MIN_SCALE = 1.0
# Maximum scale, the default of NVIDIA's Apex. jmp has none: with small gradients, its
# scale grows until the scaled loss overflows.
MAX_SCALE = 2.0**24


@dataclass(frozen=True)
class Guard(StepTransform):
    """Skips and counts non-finite steps; scales the loss for float16.

    In `TrainState.extras`, int32 `total` is the number of skipped steps, and int32
    `in_a_row` the current number of consecutive skipped steps. Loss scaling adds
    float32 `scale` and int32 `good_steps`, the number of finite steps since the scale
    last changed. With loss scaling, `in_a_row` includes a non-finite step only at the
    scale `MIN_SCALE`.

    Attributes:
      scales: Whether to scale the loss, for float16 gradients.
    """

    scales: bool = False

    name = GUARD

    def init(self, params: object, model_state: object) -> Extra:
        extra: Extra = {n: jnp.zeros((), jnp.int32) for n in ("in_a_row", "total")}
        if self.scales:
            extra["scale"] = jnp.float32(INITIAL_SCALE)
            extra["good_steps"] = jnp.int32(0)
        return extra

    def loss_factor(self, extra: Extra) -> jax.Array | None:
        return extra.get("scale")

    def after(
        self, new: TrainState, old: TrainState, context: StepContext
    ) -> tuple[TrainState, Metrics]:
        extra, finite, taken = old.extras[GUARD], context.finite, context.taken
        smallest = jnp.array(True) if not self.scales else extra["scale"] <= MIN_SCALE
        counted = (finite | smallest).astype(jnp.int32)
        in_a_row = jnp.where(taken, 0, extra["in_a_row"] + counted)
        after = {
            "in_a_row": in_a_row,
            "total": extra["total"] + 1 - taken.astype(jnp.int32),
        }
        metrics = {"skipped": 1 - taken.astype(jnp.int32), "bad_steps": in_a_row}
        if self.scales:
            after |= adjust_scale(extra["scale"], extra["good_steps"], finite)
            metrics["loss_scale"] = extra["scale"]
        return with_extra(new, GUARD, after), metrics


def adjust_scale(scale: jax.Array, good_steps: jax.Array, finite: jax.Array) -> Extra:
    """Halve the scale after a non-finite step; double it after 2000 finite steps."""
    grow = good_steps == GROWTH_PERIOD - 1
    grown = jnp.where(grow, jnp.minimum(MAX_SCALE, scale * SCALE_FACTOR), scale)
    shrunk = jnp.maximum(MIN_SCALE, scale / SCALE_FACTOR)
    return {
        "scale": jnp.where(finite, grown, shrunk),
        "good_steps": jnp.where(finite & ~grow, good_steps + 1, 0),
    }
