"""An optimizer whose layers begin at different steps of a run.

The state holds what it has of the layers that begin with the run and of the later ones,
as a pair: so it has the same structure from the first step on, and the later ones count
their own steps. The bias correction of Adam, for example, starts when they start.
"""

from collections.abc import Callable
from typing import Any

import optax

from jaxtrain.training.frozen import Frozen, merge
from jaxtrain.training.schedules import Schedule

Tx = optax.GradientTransformationExtraArgs


def of_trained(tx: Tx, frozen: Frozen) -> Tx:
    """Return `tx` with a state for the layers alone that are trained."""

    def init(params: Any) -> Any:
        return tx.init(frozen.part(params)[0])

    return optax.GradientTransformationExtraArgs(init, tx.update)


def before(tx: Tx, later: Frozen) -> Tx:
    """Return what updates the first layers, until the later ones begin."""

    def update(
        updates: Any, state: Any, params: Any = None, **extra: Any
    ) -> tuple[Any, Any]:
        updates, first = tx.update(updates, state[0], params, **extra)
        return updates, (first, state[1])

    return optax.GradientTransformationExtraArgs(_init(tx, later), update)


def after(tx: Tx, later: Frozen, make: Callable[[Schedule], Tx]) -> Tx:
    """Return what updates all layers, once the later ones have begun.

    Its `update` takes the `learning_rate` of the step: the later layers have taken
    fewer steps, and have the same rate as the others.

    Args:
      tx: of the first layers.
      later: the layers that were frozen at first.
      make: makes such an optimizer of a schedule.
    """

    def update(
        updates: Any, state: Any, params: Any = None, **extra: Any
    ) -> tuple[Any, Any]:
        first_grads, later_grads = later.part(updates)
        first_params, later_params = later.part(params)
        first_updates, first = tx.update(first_grads, state[0], first_params)
        same = make(lambda count: extra["learning_rate"])
        later_updates, rest = same.update(later_grads, state[1], later_params)
        return merge(first_updates, later_updates), (first, rest)

    return optax.GradientTransformationExtraArgs(_init(tx, later), update)


def _init(tx: Tx, later: Frozen) -> Any:
    def init(params: Any) -> Any:
        first, rest = later.part(params)
        return tx.init(first), tx.init(rest)

    return init
