"""Weight averaging as a step transform."""

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp

from jaxtrain.dtypes import wide, widen
from jaxtrain.training.averages import Average, DoneStep
from jaxtrain.training.frozen import merge
from jaxtrain.training.state import AVERAGE, TrainState, with_extra
from jaxtrain.training.transforms.base import Extra, StepContext, StepTransform
from jaxtrain.trees import path_name


@dataclass(frozen=True)
class WeightAverage(StepTransform):
    """Average of the weights, updated at each step.

    The arrays in `TrainState.extras` are `params` and `model_state`, in at least
    float32, and `memory`, the averaging state.

    For an EMA, `model_state` contains averages of batch-norm batch statistics, which
    are recovered from the running statistics: an average of running averages would lag
    behind the weights. The result is as accurate as recomputed statistics
    (docs/decisions.md). Integers such as counts are copied from the last step. For
    other averages, `model_state` is a copy of the current model state, and the
    statistics are recomputed before each evaluation.

    Attributes:
      average: Averaging rule, such as `Ema`.
    """

    average: Average

    name = AVERAGE
    sharded_as = MappingProxyType({"params": "opt_state", "model_state": "model_state"})

    def init(self, params: Any, model_state: Any) -> Extra:
        dtype = jnp.result_type(*(wide(x.dtype) for x in jax.tree.leaves(params)))
        return {
            "params": _wide_copy(params),
            "model_state": _wide_copy(model_state),
            "memory": self.average.create(dtype),
        }

    def gradient_params(self, params: Any, extra: Extra) -> Any:
        return self.average.gradient_weights(params, extra["params"])

    @property
    def moves_weights(self) -> bool:
        moved = type(self.average).gradient_weights
        return moved is not Average.gradient_weights

    def on_update(
        self, new: TrainState, old: TrainState, context: StepContext
    ) -> TrainState:
        extra, frozen = old.extras[AVERAGE], context.frozen
        done = DoneStep(context.steps_taken, context.learning_rate)
        rate, memory = self.average.rate(extra["memory"], done)

        def move(average: jax.Array, x: jax.Array) -> jax.Array:
            if not jnp.issubdtype(x.dtype, jnp.floating):
                return x
            far = rate.astype(average.dtype)
            return average + far * (x.astype(average.dtype) - average)

        def of_step(path: Any, new: jax.Array, old: jax.Array) -> jax.Array:
            momentum = context.momenta.get(path_name(path))
            if momentum is None:
                return new
            kept = momentum**context.num_micro
            return old + (new - old) / (1 - kept)

        def move_trained(average: Any, values: Any) -> Any:
            trained, rest = frozen.partition(average)
            return merge(jax.tree.map(move, trained, values), rest)

        average = move_trained(extra["params"], frozen.partition(new.params)[0])
        if self.average.of_batches:
            model_state = jax.tree_util.tree_map_with_path(
                of_step,
                frozen.partition(new.model_state)[0],
                frozen.partition(old.model_state)[0],
            )
            model_state = move_trained(extra["model_state"], model_state)
        else:
            model_state = widen(new.model_state)
        params = self.average.next_weights(new.params, average, rate)
        moved = {"params": average, "model_state": model_state, "memory": memory}
        return with_extra(replace(new, params=params), AVERAGE, moved)


def _wide_copy(tree: Any) -> Any:
    """Copy arrays, in at least float32: donated buffers must be distinct."""
    return jax.tree.map(lambda x: jnp.array(x, copy=True), widen(tree))
