"""Creation of the initial TrainState of a run, with sharded arrays."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

from jaxtrain import keys
from jaxtrain.models.blueprint import Blueprint, initial_rngs
from jaxtrain.training.state import TrainState, split_model
from jaxtrain.training.transforms.base import StepTransform


@dataclass(frozen=True, eq=False)
class CreateState:
    """Pure function from the root PRNG key to the initial TrainState.

    Jit the function with `out_shardings` to create each array sharded. A run jits
    `weights` and `begin` separately, and may load pretrained weights between the two
    calls.

    Attributes:
      blueprint: Blueprint of the model to build.
      tx: Optimizer of the run.
      transforms: Step transforms, in order.
    """

    blueprint: Blueprint
    tx: optax.GradientTransformation
    transforms: tuple[StepTransform, ...] = ()

    def __call__(self, root: jax.Array) -> TrainState:
        return self.begin(self.weights(root))

    def weights(self, root: jax.Array) -> tuple[Any, Any]:
        """Initialize the parameters and the other model state.

        Args:
          root: Root PRNG key of the run.
        """
        model = self.blueprint.build(initial_rngs(keys.stream(root, keys.INIT)))
        return split_model(model)[1:]

    def begin(self, weights: tuple[Any, Any]) -> TrainState:
        """Create the initial TrainState from initialized or pretrained weights."""
        return first_state(weights, self.tx, self.transforms)


def first_state(
    weights: tuple[Any, Any],
    tx: optax.GradientTransformation,
    transforms: Sequence[StepTransform],
) -> TrainState:
    """Create the initial TrainState of a run from its weights.

    Args:
      weights: Pair (parameters, other model state) of nested dicts.
      tx: Optimizer of the run.
      transforms: Step transforms, in order.
    """
    params, model_state = weights
    extras = {}
    for transform in transforms:
        extra = transform.init(params, model_state)
        params = transform.first_params(params, extra)
        extras[transform.name] = extra
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        model_state=model_state,
        opt_state=tx.init(params),
        extras=extras,
    )
