"""Learning-rate factor of the plateau schedule, or of a callback."""

import jax
import jax.numpy as jnp

from jaxtrain.training.transforms.base import Extra, StepTransform

PLATEAU = "plateau"


class RateFactor(StepTransform):
    """Holds `factor`, float32; `RunState.set_rate_factor` sets it between steps."""

    name = PLATEAU

    def init(self, params: object, model_state: object) -> Extra:
        return {"factor": jnp.float32(1)}

    def rate_factor(self, extra: Extra) -> jax.Array | None:
        return extra["factor"]
