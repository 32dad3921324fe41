"""Magnitude pruning as a step transform, with masks as part of the state.

After n steps, the state has the scheduled sparsity of step n. Pruned weights are 0, and
so are their moving averages and gradients.
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
    """Step transform that sets the smallest weights to 0 at scheduled steps.

    State: `masks`, nested dicts of bool arrays shaped like the pruned parameters, True
    for retained weights; and `sparsity`, the pruned fraction, float32.

    Attributes:
      kernels: Paths of the pruned parameters.
      start: First step of pruning; 0 prunes before training.
      end: Last step of pruning.
      every: Number of training steps between pruning steps.
      sparsity: Final fraction of pruned weights.
      group: N and M of an N:M pattern; None for unstructured pruning.
      kernel_order: Memory order of kernel dims, as in `Layout`.
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
        """Scheduled sparsity for `step >= start`, float32.

        The schedule is cubic (Zhu and Gupta 2017, arXiv:1710.01878, equation 1).
        """
        length = max(1, self.end - self.start)
        left = jnp.clip((self.end - step) / length, 0, 1).astype(jnp.float32)
        return self.sparsity - self.sparsity * left**3

    def is_due(self, step: jax.Array) -> jax.Array:
        """Whether pruning is due after `step` steps."""
        at = ((step - self.start) % self.every == 0) | (step == self.end)
        return (step >= self.start) & (step <= self.end) & at

    def init(self, params: Any, model_state: Any) -> Extra:
        """Create the initial masks, which prune weights if `start` is 0."""
        weights = self._of(params)
        whole = [jnp.ones(x.shape, bool) for x in weights]
        if self.start == 0:
            return self._as_extra(self.masks(jnp.int32(0), weights, whole))
        return self._as_extra(whole)

    def first_params(self, params: Any, extra: Extra) -> Any:
        return masked(params, extra["masks"])

    def project(self, direction: Any, extra: Extra) -> Any:
        """Zero the gradients of pruned weights, so the gradient norm excludes them."""
        return masked(direction, extra["masks"])

    @scopes.part(scopes.OPTIMIZER)
    def after(
        self, new: TrainState, old: TrainState, context: StepContext
    ) -> tuple[TrainState, Metrics]:
        """Prune if due, and set pruned weights and their moving averages to 0.

        A skipped step also prunes, because it may be the last pruning step.
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
            channels = f"{size - keep} of {size} input channels {of}"
            return {"pruned": f"{channels}, after {counted(self.start, 'step')}"}
        return {
            "pruned": f"{self.sparsity:.4g} {of}, from step {self.start:,} to "
            f"{self.end:,}, every {self.every:,}"
        }

    def summarize(self, state: TrainState) -> dict[str, Any]:
        return {"sparsity": sparsity_of(state.eval_params)}

    def masks(
        self, step: jax.Array, weights: Sequence[jax.Array], masks: Sequence[jax.Array]
    ) -> list[jax.Array]:
        """Compute new masks after `step` steps.

        Pruned weights stay pruned. Among equal magnitudes, earlier weights are pruned
        first. The ranking is exact, so masks do not depend on the sharding.

        Args:
          step: Number of completed steps, int32 ().
          weights: Kernels in the order of `kernels`.
          masks: Current masks of the kernels, bool.
        """
        ranked = [ranks(x, mask) for x, mask in zip(weights, masks, strict=True)]
        if self.group is not None:
            return [largest(rank, *self.group) for rank in ranked]
        size = sum(x.size for x in weights)
        number = jnp.round(self.sparsity_at(step) * size).astype(jnp.int32)
        pruned = smallest(ranked, number)
        return [mask & ~gone for mask, gone in zip(masks, pruned, strict=True)]

    def _flat(self, tree: Any) -> Any:
        """Flatten kernels in memory order.

        XLA lays out a conditional's operands for its branches, and in each step would
        copy kernels that are not row-major. Without a `kernel_order`, kernels are
        row-major, and are not changed.
        """
        order = self.kernel_order
        if order is None:
            return tree

        def flat(x: jax.Array) -> jax.Array:
            return x.transpose(order).reshape(-1) if x.ndim == len(order) else x

        return jax.tree.map(flat, tree)

    def _shaped(self, tree: Any, like: Any) -> Any:
        """Invert `_flat`; `like` is a tree with the original shapes."""
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
    """Set pruned entries of parameters or gradients to 0.

    Args:
      tree: Arrays by parameter path, optionally with extra leading dims.
      masks: Masks of the pruned parameters; parameters without a mask are unchanged.
    """
    found = by_path(masks)

    def one(path: Any, x: jax.Array) -> jax.Array:
        mask = found.get(path_name(path))
        return x if mask is None else jnp.where(mask, x, jnp.zeros((), x.dtype))

    return jax.tree_util.tree_map_with_path(one, tree) if found else tree


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Build nested dicts from values by path."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *above, name = path.split("/")
        node = tree
        for key in above:
            node = node.setdefault(key, {})
        node[name] = value
    return tree


def make_pruning(facts: RunFacts) -> Pruning | None:
    """Create the pruning transform of a run, or return None if pruning is off.

    Raises:
      UserError: A pattern matches no layer, there are no kernels to prune, or the
        schedule does not fit the run.
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
