"""Interface of step transforms."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

import jax

from jaxtrain.training.frozen import NOTHING, Frozen
from jaxtrain.training.state import TrainState

Metrics = dict[str, jax.Array]
# Arrays of a transform, by name.
Extra = dict[str, Any]
# Field of `TrainState` whose shardings apply to the arrays of a transform.
StateField = Literal["params", "model_state", "opt_state"]


@dataclass(frozen=True, kw_only=True)
class StepContext:
    """Data of a step, for `on_update`, `accepts` and `after`.

    Attributes:
      loss: Loss of the step, a scalar.
      finite: Whether loss, gradients and new values are finite.
      steps_taken: Step count for the learning-rate schedule: number of earlier steps
        that were not skipped.
      learning_rate: Learning rate of the schedule, without `rate_factor`; None with a
        line search.
      taken: Whether the step is not skipped. In `on_update`, equal to `finite`.
      momenta: Momentum per micro-batch of the batch-norm running statistics, keyed by
        path in the model state.
      num_micro: Number of micro-batches.
      frozen: Layers that are not trained.
    """

    loss: jax.Array
    finite: jax.Array
    steps_taken: jax.Array
    learning_rate: jax.Array | None
    taken: jax.Array
    momenta: Mapping[str, float] = field(default_factory=dict)
    num_micro: int = 1
    frozen: Frozen = NOTHING


@dataclass(frozen=True, kw_only=True)
class GradientContext:
    """Data of a step, for `on_gradients`.

    Attributes:
      key: PRNG key of the transform in this step, the same on all devices.
      loss: Loss of the step, a scalar.
    """

    key: jax.Array
    loss: jax.Array


class StepTransform:
    """Pure functions around the optimizer update, with state in `TrainState.extras`.

    The training step calls `gradient_params`, `loss_factor`, `on_gradients`, `project`,
    `rate_factor`, `on_update`, `accepts` and `after`, in this order, each method
    for all transforms before the next method. These methods are traced. Each stage of a
    pipeline calls the methods for its layers. Pipelines do not support transforms with
    `gradient_params` or `on_gradients`.

    Attributes:
      name: Key in `TrainState.extras`.
      sharded_as: Mapping from keys of `Extra` to fields of `TrainState`. Arrays of
        these keys are sharded like the field's arrays of the same path; other arrays
        are replicated.
    """

    name: str
    sharded_as: Mapping[str, StateField] = MappingProxyType({})

    @property
    def settled_after(self) -> int:
        """First step at which evaluations may rank checkpoints or stop the run.

        Weights of earlier steps are not comparable, for example before pruning ends.
        """
        return 0

    def init(self, params: Any, model_state: Any) -> Extra:
        """Create the initial arrays of the transform."""
        return {}

    def first_params(self, params: Any, extra: Extra) -> Any:
        """Transform the initial parameters."""
        return params

    def gradient_params(self, params: Any, extra: Extra) -> Any:
        """Compute the parameters at which the step evaluates the gradients."""
        return params

    @property
    def moves_weights(self) -> bool:
        """Whether `gradient_params` changes the weights."""
        return overrides(self, "gradient_params")

    def loss_factor(self, extra: Extra) -> jax.Array | None:
        """Loss scale, by which the gradients are divided later; None means 1."""
        return None

    def on_gradients(
        self, grads: Any, state: TrainState, context: GradientContext
    ) -> tuple[Any, Extra, Metrics]:
        """Transform the mean gradients; return gradients, new arrays and metrics.

        Called once per step, before `project`, the norm and clipping. The new arrays
        are part of the `new` state in `on_update`; a skipped step discards them.

        Args:
          grads: Mean gradients of the trainable parameters over all micro-batches and
            devices, without the loss scale.
          state: State before the step.
          context: PRNG key and loss of the step.
        """
        return grads, state.extras[self.name], {}

    def project(self, direction: Any, extra: Extra) -> Any:
        """Project a direction onto the subspace in which the parameters may change.

        Args:
          direction: Gradients of the trainable parameters, or another pytree of the
            same structure and shapes. Within a training method, per-device copies have
            a leading dim.
          extra: Arrays of this transform.
        """
        return direction

    def rate_factor(self, extra: Extra) -> jax.Array | None:
        """Factor on the learning rate, a scalar; None means 1."""
        return None

    def on_update(
        self, new: TrainState, old: TrainState, context: StepContext
    ) -> TrainState:
        """Transform the new state, before the step is accepted or skipped.

        Args:
          new: State with the new parameters, model state and optimizer state.
          old: State before the step.
          context: Data of the step; `accepts` may still change `taken`.
        """
        return new

    def accepts(self, extra: Extra, context: StepContext) -> jax.Array | None:
        """Whether to take a step with finite values, a bool scalar; None means yes."""
        return None

    def after(
        self, new: TrainState, old: TrainState, context: StepContext
    ) -> tuple[TrainState, Metrics]:
        """Transform the state after a taken or skipped step; return state and metrics.

        Args:
          new: State after the step: from `on_update` if taken, else the old arrays.
          old: State before the step.
          context: Data of the taken or skipped step.
        """
        return new, {}

    def describe(self, abstract: TrainState) -> dict[str, str]:
        """Rows of the start-up table, by label.

        Args:
          abstract: State whose leaves are `jax.ShapeDtypeStruct`.
        """
        return {}

    def summarize(self, state: TrainState) -> dict[str, Any]:
        """Entries of the transform for summary.json."""
        return {}


def overrides(transform: StepTransform, method: str) -> bool:
    """Whether a transform overrides a method."""
    return getattr(type(transform), method) is not getattr(StepTransform, method)
