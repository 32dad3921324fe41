"""What an optimizer with a line search asks of a step: the loss at other parameters."""

from collections.abc import Callable
from typing import Any

import jax


def arguments(
    loss_fn: Callable[..., Any],
    repeat: Callable[[Callable[..., Any], Any], tuple[Any, Any]],
    model_state: Any,
    loss: jax.Array,
    grads: Any,
) -> dict[str, Any]:
    """Return what `optax.lbfgs` takes beside the gradients.

    Args:
      loss_fn: `(params, model_state, batch, key) -> (loss, (model_state, _))` of a
        micro-batch.
      repeat: `(micro_step, carry) -> (carry, mean metrics)` over the micro-batches of
        the step, for a `micro_step(carry, batch, key)`.
      model_state: before the step.
      loss: at the parameters of the step.
      grads: there.
    """

    def value_fn(params: Any) -> jax.Array:
        def micro_step(carry: Any, batch: Any, key: Any) -> tuple[Any, Any]:
            value, (carry, _) = loss_fn(params, carry, batch, key)
            return carry, {"loss": value}

        return repeat(micro_step, model_state)[1]["loss"]

    return {"value": loss, "grad": grads, "value_fn": value_fn}
