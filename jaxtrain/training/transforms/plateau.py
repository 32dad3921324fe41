"""Learning-rate factor of the plateau schedule."""

import jax
import jax.numpy as jnp

from jaxtrain.training.transforms.base import Extra, StepTransform

PLATEAU = "plateau"


class Plateau(StepTransform):
    """Holds `factor`, float32; `jaxtrain.trainer.plateau` sets it between steps."""

    name = PLATEAU

    def init(self, params: object, model_state: object) -> Extra:
        return {"factor": jnp.float32(1)}

    def rate_factor(self, extra: Extra) -> jax.Array | None:
        return extra["factor"]
