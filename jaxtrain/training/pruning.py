"""Magnitude pruning: masks over kernels, part of the state, that steps keep to.

The state after n steps has the sparsity that the schedule says for n steps. A pruned
weight is exactly 0 in the weights and in their average, and has no gradient.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jaxtrain import scopes
from jaxtrain.config import PruneConfig
from jaxtrain.dtypes import widen
from jaxtrain.errors import UserError
from jaxtrain.models.base import Model
from jaxtrain.models.centres import CENTRES
from jaxtrain.models.layer_paths import find_layers, layer_paths
from jaxtrain.training.frozen import Frozen
from jaxtrain.trees import by_path, path_name

# Prunings from the first to the last, where the config does not say how many.
NUM_PRUNINGS = 32


@dataclass(frozen=True, kw_only=True)
class Pruning:
    """What is pruned after which steps.

    What the state holds of it is `masks`, nested dicts of bools as the parameters that
    are pruned, True where a weight stays, and `sparsity`, the part of those that do
    not, float32.

    Attributes:
      kernels: Paths of the parameters that are pruned.
      start: Steps after which weights are pruned for the first time; 0: before the
        first step.
      end: Steps after which they are for the last time.
      every: Steps from one time to the next.
      sparsity: Sparsity in the end.
      together: Whether the weights of all kernels are ranked together.
      group: Weights that stay of a group, and that it has, of a pattern; None ranks
        single weights.
      kernel_order: Dims of kernels from the outermost in memory on, as `Layout` has it.
    """

    kernels: tuple[str, ...]
    start: int
    end: int
    every: int
    sparsity: float = 0.0
    together: bool = True
    group: tuple[int, int] | None = None
    kernel_order: tuple[int, ...] | None = None

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

    def create(self, params: Any) -> dict[str, Any]:
        """Return what the state of a run begins with, which may be pruned already."""
        weights = self._of(params)
        whole = [jnp.ones(x.shape, bool) for x in weights]
        if self.start == 0:
            return self._as_state(self.masks(jnp.int32(0), weights, whole))
        return self._as_state(whole)

    @scopes.part(scopes.OPTIMIZER)
    def after(
        self, step: jax.Array, fields: Mapping[str, Any], pruning: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the fields of a state after a step with what is pruned set to 0.

        Args:
          step: Completed steps, this one included.
          fields: Fields of the state by name, among them `params` and `ema_params`.
          pruning: What the state before the step holds.

        Returns:
          The fields, and what the new state holds of the pruning.
        """
        weights = self._of(fields["params"])
        given = weights, pruning

        def prune(flat: Any) -> Any:
            now, before = self._shaped(flat, given)
            masks = [*by_path(before["masks"]).values()]
            return self._flat(self._as_state(self.masks(step, now, masks)))

        def keep(flat: Any) -> Any:
            return flat[1]

        found = jax.lax.cond(self.is_due(step), prune, keep, self._flat(given))
        pruning = self._shaped(found, pruning)
        held = {
            n: masked(fields[n], pruning["masks"]) for n in ("params", "ema_params")
        }
        return {**fields, **held}, pruning

    def masks(
        self, step: jax.Array, weights: Sequence[jax.Array], masks: Sequence[jax.Array]
    ) -> list[jax.Array]:
        """Return new masks once so many steps are done.

        What is pruned stays so. Of equal weights the first are pruned first. Nothing is
        rounded: the masks do not depend on how the devices share the weights.
        """
        ranks = [_ranks(x, mask) for x, mask in zip(weights, masks, strict=True)]
        if self.group is not None:
            return [_largest(rank, *self.group) for rank in ranks]
        sizes = jnp.array([x.size for x in weights])
        if self.together:
            sizes = jnp.full(len(weights), sum(x.size for x in weights))
        wanted = jnp.round(self.sparsity_at(step) * sizes).astype(jnp.int32)
        pruned = _smallest(ranks, wanted, together=self.together)
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
        """Return what `_flat` was given, of the shapes of another tree."""
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

    def _as_state(self, masks: Sequence[jax.Array]) -> dict[str, Any]:
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


def make_pruning(
    config: PruneConfig,
    model: Model,
    params: Any,
    never: Frozen,
    steps: tuple[int, int, int] | None,
    kernel_order: tuple[int, ...] | None = None,
) -> Pruning | None:
    """Return what a run prunes; None prunes nothing.

    Args:
      config: Section of the pruning.
      model: Model, which may be abstract.
      params: Its parameters, nested dicts, which may be abstract.
      never: Layers that are not trained at all, which are not pruned.
      steps: Steps of the first and of the last pruning, and from one to the next; None
        prunes nothing.
      kernel_order: Dims of kernels from the outermost in memory on; None: row by row.

    Raises:
      UserError: A pattern matches no layer, or there is nothing to prune.
    """
    if steps is None:
        return None
    start, end, every = steps
    return Pruning(
        kernels=find_kernels(config, model, params, never),
        start=start,
        end=end,
        every=every,
        sparsity=config.sparsity or 0.0,
        together=config.scope == "global",
        group=config.group,
        kernel_order=kernel_order,
    )


def find_kernels(
    config: PruneConfig, model: Model, params: Any, never: Frozen
) -> tuple[str, ...]:
    """Return the paths of the parameters that are pruned, in the order of the tree.

    Kernels are what has two dims or more, as for weight decay. By default those of the
    first layer and of the last piece are left out, which have few weights and lose
    most, and so are depthwise kernels. Of a pattern those are, too, whose input
    channels it does not divide.

    Raises:
      UserError: There is none.
    """
    arrays = by_path(params)
    kernels = {p: x.shape for p, x in arrays.items() if len(x.shape) > 1}
    layer_of = {path: path.rpartition("/")[0] for path in kernels}
    if config.layers:
        named = [find_layers(model, "prune.layers", name) for name in config.layers]
        chosen = frozenset().union(*named)
        found = {p for p in kernels if layer_of[p] in chosen}
    else:
        found = {p for p, shape in kernels.items() if not _is_depthwise(shape)}
        found -= _first_and_last(model, layer_of)
    found = {path for path in found if layer_of[path] not in never.layers}
    if config.group is not None:
        found = {path for path in found if kernels[path][-2] % config.group[1] == 0}
    if not found:
        option = f"prune.pattern = {config.pattern!r}"
        if config.sparsity is not None:
            option = f"prune.sparsity = {config.sparsity:g}"
        raise UserError(
            f"{option}: the model has nothing to prune but what is left out, by "
            "default the first layer, the last piece, depthwise and frozen ones, and "
            "of a pattern kernels whose input channels it does not divide; name layers "
            "in prune.layers, or leave it out"
        )
    return tuple(path for path in arrays if path in found)


def _is_depthwise(shape: tuple[int, ...]) -> bool:
    return len(shape) == 4 and shape[2] == 1


def _first_and_last(model: Model, layer_of: Mapping[str, str]) -> set[str]:
    """Return the paths of the kernels of the first layer and of the last piece."""
    layers = {*layer_of.values()}
    first = next(path for path in layer_paths(model) if path in layers)
    ends = [piece for piece in model.pieces if CENTRES not in piece.names][-1].names
    return {
        path
        for path, layer in layer_of.items()
        if layer == first or path.partition("/")[0] in (*ends, CENTRES)
    }


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


def _ranks(weights: jax.Array, mask: jax.Array) -> jax.Array:
    """Return unsigned integers that are ordered as the magnitudes, 0 of what is pruned.

    The bits of a float above 0, read as an integer, are ordered as the floats are. One
    is added: a weight that happens to be 0 comes after those that are pruned.
    """
    sizes = jnp.abs(widen(weights))
    dtype = jnp.uint64 if sizes.dtype == jnp.float64 else jnp.uint32
    bits = jax.lax.bitcast_convert_type(sizes, dtype)
    return jnp.where(mask, bits + dtype(1), dtype(0))


def _largest(ranks: jax.Array, keep: int, of: int) -> jax.Array:
    """Return which weights (..., inputs, outputs) are the largest of their groups.

    Args:
      ranks: Ranks of the weights.
      keep: Number that stays of each group; 0 are pruned already.
      of: Input channels of a group, which divide them.
    """
    *rows, inputs, outputs = ranks.shape
    groups = ranks.reshape(*rows, inputs // of, of, outputs)
    one, other = groups[..., :, None, :], groups[..., None, :, :]
    # Of equal ones the first are pruned first.
    later = jnp.tri(of, dtype=bool).T[..., None]
    before = (other > one) | ((other == one) & later)
    # A weight is never before itself.
    place = jnp.sum(before & ~jnp.eye(of, dtype=bool)[..., None], axis=-2)
    return ((place < keep) & (groups > 0)).reshape(ranks.shape)


def _smallest(
    ranks: Sequence[jax.Array], wanted: jax.Array, *, together: bool
) -> list[jax.Array]:
    """Return which elements are the smallest; of equal ones the first are.

    A bisection counts elements, once a bit: that is exact, and devices that share the
    arrays exchange some counts alone, where a sort would gather them all.

    Args:
      ranks: Unsigned integers of one dtype.
      wanted: Number of elements, int32 (arrays,); of all arrays `together`, in each of
        its places.
      together: Whether the elements of all arrays are ranked together.
    """

    def count(chosen: Sequence[jax.Array]) -> jax.Array:
        each = jnp.stack([jnp.sum(x, dtype=jnp.int32) for x in chosen])
        return jnp.full_like(each, jnp.sum(each)) if together else each

    def last_below(
        values: Sequence[jax.Array], among: Sequence[jax.Array], number: jax.Array
    ) -> jax.Array:
        """Return the largest limits below which there are fewer than a number."""
        dtype = values[0].dtype
        num_bits = 8 * dtype.itemsize

        def add_bit(i: jax.Array, limits: jax.Array) -> jax.Array:
            bit = jnp.left_shift(dtype.type(1), (num_bits - 1 - i).astype(dtype))
            higher = limits | bit
            below = [
                (x < higher[j]) & some
                for j, (x, some) in enumerate(zip(values, among, strict=True))
            ]
            return jnp.where(count(below) < number, higher, limits)

        return jax.lax.fori_loop(0, num_bits, add_bit, jnp.zeros(len(values), dtype))

    everywhere = [jnp.ones((), bool)] * len(ranks)
    limits = last_below(ranks, everywhere, wanted)
    below = [x < limits[i] for i, x in enumerate(ranks)]
    equal = [x == limits[i] for i, x in enumerate(ranks)]
    rest = wanted - count(below)
    positions = _positions([x.shape for x in ranks], together=together)
    last = last_below(positions, equal, rest)
    return [
        below[i] | (equal[i] & (positions[i] <= last[i]) & (rest[i] > 0))
        for i in range(len(ranks))
    ]


def _positions(shapes: Sequence[tuple[int, ...]], *, together: bool) -> list[jax.Array]:
    """Return the number of each element, uint32, in its array or in all of them."""
    found, first = [], 0
    for shape in shapes:
        size = 1
        number: Any = jnp.full(shape, first if together else 0, jnp.uint32)
        for dim in reversed(range(len(shape))):
            number += jax.lax.broadcasted_iota(jnp.uint32, shape, dim) * size
            size *= shape[dim]
        found.append(number)
        first += size
    return found
