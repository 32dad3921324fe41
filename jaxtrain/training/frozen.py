"""Frozen layers, for the entire run or for its first epochs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import optax

from jaxtrain.training.schedules import Schedule

if TYPE_CHECKING:
    from jaxtrain.models.base import Model

Tx = optax.GradientTransformationExtraArgs


@dataclass(frozen=True)
class Frozen:
    """Frozen layers, which are not trained and run in evaluation mode.

    Frozen batch norms use running statistics, and frozen dropout is off.

    Attributes:
      layers: Paths of the frozen layers and of all layers within them.
      statistics: Whether running statistics of batch norms, and ranges of quantizers,
        are fixed in all layers, including trained layers.
    """

    layers: frozenset[str] = frozenset()
    statistics: bool = False

    def partition(self, tree: Any) -> tuple[Any, Any]:
        """Partition a tree of arrays into (trainable, frozen), by path.

        Empty subtrees are omitted.
        """
        if not self.layers:
            return tree, {}
        return self._select(tree, False, ()), self._select(tree, True, ())

    def switch(self, model: "Model") -> None:
        """Set the frozen layers of a training-mode model to evaluation mode."""
        if self.layers:
            model.evaluate_layers(self.layers)
        if self.statistics:
            model.set_attributes(use_running_average=True, raise_if_not_found=False)

    def _select(self, tree: Any, frozen: bool, path: tuple[str, ...]) -> Any:
        if not isinstance(tree, dict):
            return tree  # An `optax.MaskedNode`, which replaces masked parameters.
        if "/".join(path) in self.layers:
            return tree if frozen else {}
        chosen = {}
        for name, node in tree.items():
            if isinstance(node, dict):
                part = self._select(node, frozen, (*path, str(name)))
                chosen |= {name: part} if part else {}
            elif not frozen:
                chosen[name] = node
        return chosen


# No layer is frozen.
NOTHING = Frozen()


def merge(one: Any, other: Any) -> Any:
    """Merge the two trees returned by `Frozen.partition`."""
    if not isinstance(one, dict):
        return one
    merged = {**other, **one}
    for name in one.keys() & other.keys():
        merged[name] = merge(one[name], other[name])
    return merged


def trained_only(tx: Tx, frozen: Frozen) -> Tx:
    """Restrict `tx`, and its state, to the trainable layers."""

    def init(params: Any) -> Any:
        return tx.init(frozen.partition(params)[0])

    return optax.GradientTransformationExtraArgs(init, tx.update)


def with_told_rate(tx: Tx, make: Callable[[Schedule], Tx]) -> Tx:
    """Wrap an optimizer so that `update` takes `learning_rate` as a keyword argument.

    Args:
      tx: Optimizer whose state has the step count of its schedule.
      make: Function from a schedule to an optimizer with the same state as `tx`.
    """

    def update(
        updates: Any, state: Any, params: Any = None, **extra: Any
    ) -> tuple[Any, Any]:
        told = make(lambda count: extra["learning_rate"])
        return told.update(updates, state, params)

    return optax.GradientTransformationExtraArgs(tx.init, update)


def two_phases(tx: Tx, later: Frozen, make: Callable[[Schedule], Tx]) -> tuple[Tx, Tx]:
    """Create the optimizer of the frozen phase and the optimizer of the full phase.

    Both optimizers have the same state structure: (state of the layers trained from the
    start, state of the layers unfrozen later). Each of the two states has a step count,
    so Adam's bias correction of unfrozen layers starts when these layers are unfrozen.
    In the full phase, `update` takes `learning_rate`, which applies to all layers.

    Args:
      tx: Optimizer of the layers trained from the start.
      later: Layers frozen in the first phase.
      make: Function from a schedule to an optimizer with the same state as `tx`.
    """

    told = with_told_rate(tx, make)

    def init(params: Any) -> Any:
        first, rest = later.partition(params)
        return tx.init(first), tx.init(rest)

    def before(
        updates: Any, state: Any, params: Any = None, **extra: Any
    ) -> tuple[Any, Any]:
        updates, first = tx.update(updates, state[0], params, **extra)
        return updates, (first, state[1])

    def after(
        updates: Any, state: Any, params: Any = None, **extra: Any
    ) -> tuple[Any, Any]:
        first_grads, later_grads = later.partition(updates)
        first_params, later_params = later.partition(params)
        first_updates, first = told.update(first_grads, state[0], first_params, **extra)
        later_updates, rest = told.update(later_grads, state[1], later_params, **extra)
        return merge(first_updates, later_updates), (first, rest)

    make_tx = optax.GradientTransformationExtraArgs
    return make_tx(init, before), make_tx(init, after)
