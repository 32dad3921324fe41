"""Rematerialization: recomputation of activations in the backward pass.

Chen et al. 2016, arXiv:1604.06174. Results are the same as without rematerialization,
including random numbers. The optimization barriers of `jax.checkpoint` prevent XLA from
merging the recomputation with the forward pass, unless XLA removes them (see
`compiler_options`).
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

# Primitives whose results are stored instead of recomputed. `SUMS` compute batch-norm
# statistics (two `reduce_sum` on CPUs, one joint `reduce` on GPUs): their results are
# small, but recomputation would read large arrays.
SUMS = frozenset({lax.reduce_sum_p, lax.reduce_p})
PRODUCTS = SUMS | {lax.conv_general_dilated_p, lax.dot_general_p}


def compiler_options(remat: Remat, platform: str) -> dict[str, str] | None:
    """Compiler options for programs with rematerialization.

    XLA:CPU removes optimization barriers before its last common-subexpression
    elimination (CSE), which would then undo the rematerialization. The options disable
    the removal.
    """
    if remat == "none" or platform != "cpu":
        return None
    return {"xla_disable_hlo_passes": "cse_barrier_expander"}


@dataclass(frozen=True)
class Segment:
    """Consecutive pieces of a model, as a function.

    Attributes:
      names: Names of the layers in the segment.
      apply: Function (layers by name, x, PRNG key) -> x.
    """

    names: tuple[str, ...]
    apply: Callable[[Modules, Any, jax.Array | None], Any]


def join(remat: Remat, segments: Sequence[Segment], *, tied: bool = False) -> Segment:
    """Chain segments into one, with the rematerialization policy `remat`.

    The policy `full` groups n segments into sections of about sqrt(n) segments, and
    stores only the inputs of sections. The backward pass of a section first recomputes
    the inputs of its segments, and then the activations of one segment at a time.

    Args:
      remat: Policy of rematerialization.
      tied: Whether to compute the parameter gradients of a segment before the backward
        pass of earlier segments. Otherwise, XLA:GPU delays parameter gradients until
        just before the all-reduce, and activations use memory until then. All
        parameters must be trainable, as the backward pass continues to the first
        segment.
    """
    if remat == "none":
        return _chain(segments)
    stored = PRODUCTS if remat == "conv_outputs" else SUMS
    segments = [_recomputed(p, stored, tied and i > 0) for i, p in enumerate(segments)]
    size = math.isqrt(len(segments))
    if remat != "full" or size == 1:
        return _chain(segments)
    sections = [segments[i : i + size] for i in range(0, len(segments), size)]
    return _chain([_recomputed(_chain(section), stored) for section in sections])


def _chain(segments: Sequence[Segment]) -> Segment:
    def apply(layers: Modules, x: Any, key: jax.Array | None) -> Any:
        for segment in segments:
            x = segment.apply(layers, x, key)
        return x

    return Segment(tuple(name for segment in segments for name in segment.names), apply)


def _recomputed(
    segment: Segment, stored: frozenset[Any], tied: bool = False
) -> Segment:
    """Rematerialize a segment: store only inputs and results of `stored` primitives.

    The state of layers is updated only in the forward pass.
    """

    def is_stored(primitive: Any, *_: Any, **__: Any) -> bool:
        return primitive in stored

    def apply(layers: Modules, x: Any, key: jax.Array | None) -> Any:
        own = {name: layers[name] for name in segment.names}
        graphdef, params, state = nnx.split(own, nnx.Param, ...)

        def pure(params: Any, state: Any, x: Any, key: Any) -> tuple[Any, Any]:
            layers = nnx.merge(graphdef, params, state)
            y = segment.apply(layers, x, key)
            return y, nnx.split(layers, nnx.Param, ...)[2]

        if tied:
            # Differentiation applies the barrier to the gradients of `params` and `x`,
            # too.
            params, x = lax.optimization_barrier((params, x))
        y, state = jax.checkpoint(pure, policy=is_stored)(params, state, x, key)
        nnx.update(own, state)
        return y

    return Segment(segment.names, apply)
