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


class StepTransform:
    """Pure functions around the optimizer, and the arrays that they keep.

    A step calls `gradient_params`, `loss_factor`, `on_gradients`, `project`,
    `rate_factor`, `on_update`, `accepts` and `after`, each of all transforms in order:
    these are traced. Of a pipeline each stage calls them with its own layers.

    Attributes:
      name: Key of its arrays in `TrainState.extras`.
      sharded_as: Key of its arrays -> `params` or `opt_state`: they are sharded as the
        parameters, or the optimizer state, of the same paths. The `fsdp` axis shares no
        others.
    """

    name: str
    sharded_as: Mapping[str, Literal["params", "opt_state"]] = MappingProxyType({})

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

    def project(self, direction: Any, extra: Extra) -> Any:
        """Return a direction of the parameters without what a step may not move.

        Args:
          direction: Gradients, or the like, of the trained parameters by their paths. A
            method also has those of copies, with a leading dim.
          extra: Arrays of this transform.
        """
        return direction

    def on_gradients(self, grads: Any, extra: Extra, key: jax.Array) -> Any:
        """Return the mean gradients of a step, changed.

        Args:
          grads: Gradients of the trained parameters by their paths, of all
            micro-batches and devices; the norm that is logged and clipped is that of
            what is returned.
          extra: Arrays of this transform.
          key: Key of the step. What is drawn for an array must depend on its path, as
            the stages of a pipeline have some of the arrays each.
        """
        return grads

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
