"""Magnitude pruning: masks over kernels, part of the state, that steps keep to.

The state after n steps has the sparsity that the schedule says for n steps. A pruned
weight is exactly 0 in the weights and in their average, and has no gradient.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp

from jaxtrain import scopes
from jaxtrain.errors import counted
from jaxtrain.plugins.pruning.config import PruneConfig
from jaxtrain.plugins.pruning.kernels import find_kernels
from jaxtrain.plugins.pruning.ranks import largest, ranks, smallest
from jaxtrain.plugins.pruning.times import pruning_steps
from jaxtrain.trainer.transforms import RunFacts
from jaxtrain.training.sparsity import sparsity_of
from jaxtrain.training.state import AVERAGE, TrainState, split_model, with_extra
from jaxtrain.training.transforms.base import (
    Extra,
    Metrics,
    StepContext,
    StepTransform,
)
from jaxtrain.trees import by_path, path_name


@dataclass(frozen=True, kw_only=True)
class Pruning(StepTransform):
    """Sets the smallest weights to 0 after some steps.

    Its arrays are `masks`, nested dicts of bools as the parameters that
    are pruned, True where a weight stays, and `sparsity`, the part of those that do
    not, float32.

    Attributes:
      kernels: Paths of the parameters that are pruned.
      start: Steps after which weights are pruned for the first time; 0: before the
        first step.
      end: Steps after which they are for the last time.
      every: Steps from one time to the next.
      sparsity: Sparsity in the end.
      group: Weights that stay of a group, and that it has, of a pattern; None ranks
        single weights.
      kernel_order: Dims of kernels from the outermost in memory on, as `Layout` has it.
    """

    kernels: tuple[str, ...]
    start: int
    end: int
    every: int
    sparsity: float = 0.0
    group: tuple[int, int] | None = None
    kernel_order: tuple[int, ...] | None = None

    name = "pruning"
    sharded_as = MappingProxyType({"masks": "params"})

    @property
    def settled_after(self) -> int:
        return self.end

    def sparsity_at(self, step: jax.Array) -> jax.Array:
        """Return the sparsity after so many steps, from the start on, float32.

        It rises fast at first, while there are many weights to do without (Zhu and
        Gupta 2017, arXiv:1710.01878, equation 1).
        """
        length = max(1, self.end - self.start)
        left = jnp.clip((self.end - step) / length, 0, 1).astype(jnp.float32)
        return self.sparsity - self.sparsity * left**3

    def is_due(self, step: jax.Array) -> jax.Array:
        """Return whether weights are pruned once so many steps are done."""
        at = ((step - self.start) % self.every == 0) | (step == self.end)
        return (step >= self.start) & (step <= self.end) & at

    def init(self, params: Any, model_state: Any) -> Extra:
        """Return the masks to begin with, which may prune already."""
        weights = self._of(params)
        whole = [jnp.ones(x.shape, bool) for x in weights]
        if self.start == 0:
            return self._as_extra(self.masks(jnp.int32(0), weights, whole))
        return self._as_extra(whole)

    def first_params(self, params: Any, extra: Extra) -> Any:
        return masked(params, extra["masks"])

    def project(self, direction: Any, extra: Extra) -> Any:
        """Set the gradients of pruned weights to 0: they are no part of the norm."""
        return masked(direction, extra["masks"])

    @scopes.part(scopes.OPTIMIZER)
    def after(
        self, new: TrainState, old: TrainState, context: StepContext
    ) -> tuple[TrainState, Metrics]:
        """Prune if it is due, and set pruned weights and their average to 0.

        Also after a step that is skipped: it may be the last that is due.
        """
        weights, pruning = self._of(new.params), old.extras[self.name]
        given = weights, pruning

        def prune(flat: Any) -> Any:
            now, before = self._shaped(flat, given)
            masks = [*by_path(before["masks"]).values()]
            return self._flat(self._as_extra(self.masks(new.step, now, masks)))

        def keep(flat: Any) -> Any:
            return flat[1]

        found = jax.lax.cond(self.is_due(new.step), prune, keep, self._flat(given))
        pruning = self._shaped(found, pruning)
        masks = pruning["masks"]
        state = replace(new, params=masked(new.params, masks))
        if average := state.extras.get(AVERAGE):
            average = {**average, "params": masked(average["params"], masks)}
            state = with_extra(state, AVERAGE, average)
        metrics = {"sparsity": pruning["sparsity"]}
        return with_extra(state, self.name, pruning), metrics

    def describe(self, abstract: TrainState) -> dict[str, str]:
        masks = jax.tree.leaves(abstract.extras[self.name]["masks"])
        number = sum(mask.size for mask in masks)
        of = f"of {number:,} weights of {counted(len(masks), 'kernel')}"
        if self.group is not None:
            keep, size = self.group
            told = f"{size - keep} of {size} input channels {of}, after"
            return {"pruned": f"{told} {counted(self.start, 'step')}"}
        return {
            "pruned": f"{self.sparsity:.4g} {of}, from step {self.start:,} to "
            f"{self.end:,}, every {self.every:,}"
        }

    def summarize(self, state: TrainState) -> dict[str, Any]:
        return {"sparsity": sparsity_of(state.eval_params)}

    def masks(
        self, step: jax.Array, weights: Sequence[jax.Array], masks: Sequence[jax.Array]
    ) -> list[jax.Array]:
        """Return new masks once so many steps are done.

        What is pruned stays so. Of equal weights the first are pruned first. Nothing is
        rounded: the masks do not depend on how the devices share the weights.
        """
        ranked = [ranks(x, mask) for x, mask in zip(weights, masks, strict=True)]
        if self.group is not None:
            return [largest(rank, *self.group) for rank in ranked]
        size = sum(x.size for x in weights)
        number = jnp.round(self.sparsity_at(step) * size).astype(jnp.int32)
        pruned = smallest(ranked, number)
        return [mask & ~gone for mask, gone in zip(masks, pruned, strict=True)]

    def _flat(self, tree: Any) -> Any:
        """Return kernels as vectors of their elements in the order in memory.

        XLA lays out what enters and leaves a conditional as its branches ask for: of
        kernels in another order than rows the state would be copied in each step. On
        several devices, which share kernels, they lie row by row, and stay.
        """
        order = self.kernel_order
        if order is None:
            return tree

        def flat(x: jax.Array) -> jax.Array:
            return x.transpose(order).reshape(-1) if x.ndim == len(order) else x

        return jax.tree.map(flat, tree)

    def _shaped(self, tree: Any, like: Any) -> Any:
        """Reverse `_flat`: kernels of the shapes of another tree."""
        order = self.kernel_order
        if order is None:
            return tree
        back = [order.index(dim) for dim in range(len(order))]

        def shaped(x: jax.Array, like: jax.Array) -> jax.Array:
            if like.ndim != len(order):
                return x
            return x.reshape([like.shape[dim] for dim in order]).transpose(back)

        return jax.tree.map(shaped, tree, like)

    def _of(self, params: Any) -> list[jax.Array]:
        found = by_path(params)
        return [found[path] for path in self.kernels]

    def _as_extra(self, masks: Sequence[jax.Array]) -> dict[str, Any]:
        kept = jnp.sum(jnp.stack([jnp.sum(x, dtype=jnp.int32) for x in masks]))
        total = sum(mask.size for mask in masks)
        return {
            "masks": _nested(dict(zip(self.kernels, masks, strict=True))),
            "sparsity": 1 - kept.astype(jnp.float32) / total,
        }


def masked(tree: Any, masks: Any) -> Any:
    """Return parameters, or gradients, with 0 where a weight is pruned.

    Args:
      tree: Arrays by the paths of parameters; dims before theirs may be more.
      masks: Masks of some of them; {} leaves all as they are.
    """
    found = by_path(masks)

    def one(path: Any, x: jax.Array) -> jax.Array:
        mask = found.get(path_name(path))
        return x if mask is None else jnp.where(mask, x, jnp.zeros((), x.dtype))

    return jax.tree_util.tree_map_with_path(one, tree) if found else tree


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested dicts for values by their paths."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *above, name = path.split("/")
        node = tree
        for key in above:
            node = node.setdefault(key, {})
        node[name] = value
    return tree


def make_pruning(facts: RunFacts) -> Pruning | None:
    """Return the pruning that a run asks for; None if it asks for none.

    Raises:
      UserError: A pattern matches no layer, or there is nothing to prune.
    """
    config: PruneConfig = getattr(facts.config, "prune")  # noqa: B009
    if not config.is_on:
        return None
    start, end, every = pruning_steps(config, facts.config, facts.timetable)
    params = split_model(facts.model)[1]
    return Pruning(
        kernels=find_kernels(config, facts.model, params, facts.never_trained),
        start=start,
        end=end,
        every=every,
        sparsity=config.sparsity or 0.0,
        group=config.group,
        kernel_order=facts.kernel_order,
    )
