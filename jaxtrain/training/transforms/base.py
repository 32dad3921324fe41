"""The interface of a transform of the step, and the step as it sees it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

import jax

from jaxtrain.training.frozen import NOTHING, Frozen
from jaxtrain.training.state import TrainState

Metrics = dict[str, jax.Array]
# Arrays of the state that belong to one transform, by name.
Extra = dict[str, Any]
# Field of the state that arrays of a transform are sharded as.
StateField = Literal["params", "model_state", "opt_state"]


@dataclass(frozen=True, kw_only=True)
class StepContext:
    """A step whose new state is computed, but not yet chosen.

    Attributes:
      loss: Loss of the step, a scalar.
      finite: Whether loss, gradients and new values are finite.
      steps_taken: Number of earlier steps that were not skipped, on which the learning
        rate depends.
      learning_rate: Learning rate of the schedule, without `rate_factor`; None where a
        line search finds it.
      taken: Whether the step is taken; until that is known, `finite`.
      momenta: Momentum of each running statistic of batch norm, for one micro-batch, by
        path.
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
    """A step whose mean gradients are computed.

    Attributes:
      key: Key of the step for one transform, the same on all devices.
      loss: Loss of the step, a scalar.
    """

    key: jax.Array
    loss: jax.Array


class StepTransform:
    """Pure functions around the optimizer, and the arrays that they keep.

    A step calls `gradient_params`, `loss_factor`, `on_gradients`, `project`,
    `rate_factor`, `on_update`, `accepts` and `after`, each of all transforms in order:
    these are traced. Of a pipeline each stage calls them with its own layers; it takes
    no transforms with `gradient_params` or `on_gradients`.

    Attributes:
      name: Key of its arrays in `TrainState.extras`.
      sharded_as: Key of its arrays -> field of the state: they are sharded as its
        arrays of the same paths. Others are replicated.
    """

    name: str
    sharded_as: Mapping[str, StateField] = MappingProxyType({})

    @property
    def settled_after(self) -> int:
        """Steps from which on evaluations rank checkpoints and may stop the run.

        Before, the weights are still those of another, better model.
        """
        return 0

    def init(self, params: Any, model_state: Any) -> Extra:
        """Return the first arrays."""
        return {}

    def first_params(self, params: Any, extra: Extra) -> Any:
        """Return the parameters to begin with."""
        return params

    def gradient_params(self, params: Any, extra: Extra) -> Any:
        """Return the parameters at which the step computes the gradients."""
        return params

    @property
    def moves_weights(self) -> bool:
        """Whether `gradient_params` returns other weights than it is given."""
        return overrides(self, "gradient_params")

    def loss_factor(self, extra: Extra) -> jax.Array | None:
        """Return a factor on the loss, which gradients are divided by; None: 1."""
        return None

    def on_gradients(
        self, grads: Any, state: TrainState, context: GradientContext
    ) -> tuple[Any, Extra, Metrics]:
        """Return gradients to take in their place, arrays to keep, and metrics.

        Called once a step. `project`, the norm and clipping follow. `on_update` finds
        the arrays in its `new` state; a step that is skipped drops them.

        Args:
          grads: Mean gradients of the trained parameters, over all micro-batches and
            devices, without the loss scale.
          state: State before the step.
          context: Step that the gradients are of.
        """
        return grads, state.extras[self.name], {}

    def project(self, direction: Any, extra: Extra) -> Any:
        """Return a direction of the parameters without what a step may not move.

        Args:
          direction: Gradients, or the like, of the trained parameters by their paths. A
            method also has those of copies, with a leading dim.
          extra: Arrays of this transform.
        """
        return direction

    def rate_factor(self, extra: Extra) -> jax.Array | None:
        """Return a factor on the learning rate, a scalar; None: 1."""
        return None

    def on_update(
        self, new: TrainState, old: TrainState, context: StepContext
    ) -> TrainState:
        """Return the state after the step, if it is taken.

        Args:
          new: State with the new parameters, model state and optimizer state.
          old: State before the step.
          context: Step; `taken` is not known yet.
        """
        return new

    def accepts(self, extra: Extra, context: StepContext) -> jax.Array | None:
        """Return whether a finite step may be taken, a scalar; None: yes."""
        return None

    def after(
        self, new: TrainState, old: TrainState, context: StepContext
    ) -> tuple[TrainState, Metrics]:
        """Return the state after the step, taken or skipped, and metrics to log.

        Args:
          new: State after the step: that of `on_update`, or the old arrays.
          old: State before the step.
          context: Step that was taken or skipped.
        """
        return new, {}

    def describe(self, abstract: TrainState) -> dict[str, str]:
        """Return rows of the table at the start of a run.

        Args:
          abstract: State without values.
        """
        return {}

    def summarize(self, state: TrainState) -> dict[str, Any]:
        """Return entries of the summary at the end of a run."""
        return {}


def overrides(transform: StepTransform, method: str) -> bool:
    """Return whether a transform has a method of its own."""
    return getattr(type(transform), method) is not getattr(StepTransform, method)
