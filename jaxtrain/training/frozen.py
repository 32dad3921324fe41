"""Layers that are not trained, throughout or at first: what a step leaves out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import optax

from jaxtrain.models.base import Model
from jaxtrain.training.schedules import Schedule

Tx = optax.GradientTransformationExtraArgs


@dataclass(frozen=True)
class Frozen:
    """Layers that stay as they are, and compute as in an evaluation.

    So their batch norms use the running statistics, and nothing in them is random.

    Attributes:
      layers: Paths such as `stage1_block2/conv1`, with those of all layers within them.
      statistics: Whether the batch-norm statistics and the ranges of all other layers
        stay, too, and are those that these compute with.
    """

    layers: frozenset[str] = frozenset()
    statistics: bool = False

    def part(self, tree: Any) -> tuple[Any, Any]:
        """Return what is trained of a tree of arrays by their paths, and the rest.

        Each is such a tree, without the layers that it has nothing of.
        """
        if not self.layers:
            return tree, {}
        return self._select(tree, False, ()), self._select(tree, True, ())

    def switch(self, model: Model) -> None:
        """Have the layers of a model in training compute as in an evaluation."""
        if self.layers:
            model.evaluate_layers(self.layers)
        if self.statistics:
            model.set_attributes(use_running_average=True, raise_if_not_found=False)

    def _select(self, tree: Any, frozen: bool, path: tuple[str, ...]) -> Any:
        if not isinstance(tree, dict):
            return tree  # What optax puts in the place of all parameters.
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


# What a run has frozen that trains all of its layers.
NOTHING = Frozen()


def merge(one: Any, other: Any) -> Any:
    """Put together two trees that `part` has made of one."""
    if not isinstance(one, dict):
        return one
    merged = {**other, **one}
    for name in one.keys() & other.keys():
        merged[name] = merge(one[name], other[name])
    return merged


def trained_only(tx: Tx, frozen: Frozen) -> Tx:
    """Return `tx` with a state for the layers alone that are trained."""

    def init(params: Any) -> Any:
        return tx.init(frozen.part(params)[0])

    return optax.GradientTransformationExtraArgs(init, tx.update)


def with_told_rate(tx: Tx, make: Callable[[Schedule], Tx]) -> Tx:
    """Return `tx` whose `update` takes the `learning_rate` of the step.

    Args:
      tx: Optimizer that counts the steps of its schedule itself.
      make: Function that makes such an optimizer, of the same state, of a schedule.
    """

    def update(
        updates: Any, state: Any, params: Any = None, **extra: Any
    ) -> tuple[Any, Any]:
        told = make(lambda count: extra["learning_rate"])
        return told.update(updates, state, params)

    return optax.GradientTransformationExtraArgs(tx.init, update)


def two_phases(tx: Tx, later: Frozen, make: Callable[[Schedule], Tx]) -> tuple[Tx, Tx]:
    """Return the optimizers of the steps before, and after, some layers begin.

    The state of both is a pair: what they have of the first layers, and of the later
    ones. So it has the same structure from the first step on, and the later layers
    count their own steps: the bias correction of Adam, for example, starts when they
    start. The second `update` takes the `learning_rate` of the step, which is the same
    for all layers.

    Args:
      tx: Optimizer of the first layers.
      later: Layers that are frozen at first.
      make: Function that makes such an optimizer of a schedule.
    """

    told = with_told_rate(tx, make)

    def init(params: Any) -> Any:
        first, rest = later.part(params)
        return tx.init(first), tx.init(rest)

    def before(
        updates: Any, state: Any, params: Any = None, **extra: Any
    ) -> tuple[Any, Any]:
        updates, first = tx.update(updates, state[0], params, **extra)
        return updates, (first, state[1])

    def after(
        updates: Any, state: Any, params: Any = None, **extra: Any
    ) -> tuple[Any, Any]:
        first_grads, later_grads = later.part(updates)
        first_params, later_params = later.part(params)
        first_updates, first = told.update(first_grads, state[0], first_params, **extra)
        later_updates, rest = told.update(later_grads, state[1], later_params, **extra)
        return merge(first_updates, later_updates), (first, rest)

    make_tx = optax.GradientTransformationExtraArgs
    return make_tx(init, before), make_tx(init, after)
