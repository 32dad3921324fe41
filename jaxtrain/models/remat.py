"""Rematerialisation: what a backward pass computes again, in place of storing it.

Chen et al. 2016, arXiv:1604.06174. `jax.checkpoint` gives the same numbers, random
ones too. Its barriers keep XLA from merging the two computations, if XLA keeps them
(see `compiler_options`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from flax import nnx
from jax import lax

from jaxtrain.config.train import Remat

Modules = Mapping[str, nnx.Module]

# Sums are small and take a pass over large arrays: the statistics of batch norms, two
# sums on a CPU and one reduction on a GPU.
SUMS = frozenset({lax.reduce_sum_p, lax.reduce_p})
PRODUCTS = SUMS | {lax.conv_general_dilated_p, lax.dot_general_p}


def compiler_options(remat: Remat, platform: str) -> dict[str, str] | None:
    """Return the compiler options of a program with recomputations.

    XLA:CPU removes the barriers before its last search for common subexpressions, which
    then undoes all of it: without this pass the memory is that of `none`.
    """
    if remat == "none" or platform != "cpu":
        return None
    return {"xla_disable_hlo_passes": "cse_barrier_expander"}


@dataclass(frozen=True)
class Part:
    """Consecutive pieces of a model, or one.

    Attributes:
      names: of its layers.
      apply: `(layers, x, key) -> x`, with the layers by their names.
    """

    names: tuple[str, ...]
    apply: Callable[[Modules, Any, jax.Array | None], Any]


def join(remat: Remat, parts: Sequence[Part], *, tied: bool = False) -> Part:
    """Return the parts in turn, of which a backward pass recomputes what `remat` says.

    With `full`, sections of parts are recomputed from what goes into each of them, and
    then each part from what goes into it.

    Args:
      remat: Policy of rematerialisation.
      tied: Whether the gradients of a part's parameters are computed before those of
        the parts in front. Else XLA:GPU computes them late, shortly before they are
        reduced over devices, and keeps all that they need until then. All parameters
        must be trained, or the backward pass would go on to the first part.
    """
    if remat == "none":
        return _in_turn(parts)
    stored = PRODUCTS if remat == "conv_outputs" else SUMS
    parts = [_recomputed(p, stored, tied and i > 0) for i, p in enumerate(parts)]
    size = math.isqrt(len(parts))
    if remat != "full" or size == 1:
        return _in_turn(parts)
    sections = [parts[i : i + size] for i in range(0, len(parts), size)]
    return _in_turn([_recomputed(_in_turn(section), stored) for section in sections])


def _in_turn(parts: Sequence[Part]) -> Part:
    def apply(layers: Modules, x: Any, key: jax.Array | None) -> Any:
        for part in parts:
            x = part.apply(layers, x, key)
        return x

    return Part(tuple(name for part in parts for name in part.names), apply)


def _recomputed(part: Part, stored: frozenset[Any], tied: bool = False) -> Part:
    """Return a part of which its inputs are stored and what `stored` primitives give.

    It changes the state of its layers once, in the forward pass.
    """

    def is_stored(primitive: Any, *_: Any, **__: Any) -> bool:
        return primitive in stored

    def apply(layers: Modules, x: Any, key: jax.Array | None) -> Any:
        own = {name: layers[name] for name in part.names}
        graphdef, params, state = nnx.split(own, nnx.Param, ...)

        def pure(params: Any, state: Any, x: Any, key: Any) -> tuple[Any, Any]:
            layers = nnx.merge(graphdef, params, state)
            y = part.apply(layers, x, key)
            return y, nnx.split(layers, nnx.Param, ...)[2]

        if tied:
            # The gradients go through such a barrier, too.
            params, x = lax.optimization_barrier((params, x))
        y, state = jax.checkpoint(pure, policy=is_stored)(params, state, x, key)
        nnx.update(own, state)
        return y

    return Part(part.names, apply)
