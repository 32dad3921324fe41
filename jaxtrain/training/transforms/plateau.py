"""Learning-rate factor that the plateau schedule or a callback sets."""

import jax
import jax.numpy as jnp

from jaxtrain.training.transforms.base import Extra, StepTransform

PLATEAU = "plateau"


class RateFactor(StepTransform):
    """Multiplies the learning rate by the float32 array `factor`.

    `RunState.set_rate_factor` sets the factor between steps.
    """

    name = PLATEAU

    def init(self, params: object, model_state: object) -> Extra:
        return {"factor": jnp.float32(1)}

    def rate_factor(self, extra: Extra) -> jax.Array | None:
        return extra["factor"]
