"""Training method with one forward and one backward pass per batch."""

from typing import Any

import jax

from jaxtrain.config.methods import PlainConfig
from jaxtrain.data.batch import Batch
from jaxtrain.training.methods.base import Gradients, Method, Objective


class Plain(Method):
    """Computes the gradients of the mean loss."""

    Options = PlainConfig

    def gradients(
        self,
        objective: Objective,
        params: Any,
        model_state: Any,
        batch: Batch,
        key: jax.Array,
        /,
    ) -> Gradients:
        differentiated = jax.value_and_grad(objective, has_aux=True)
        (_, (model_state, metrics)), grads = differentiated(
            params, model_state, batch, key
        )
        return grads, model_state, metrics
