"""Sparsity of a model: the fraction of zero weights per layer."""

from typing import Any, TypedDict

import jax.numpy as jnp

from jaxtrain.errors import counted
from jaxtrain.trees import by_path


class ZeroShare(TypedDict):
    """Counts of weights and nonzero weights in one or more kernels.

    Attributes:
      weights: Number of weights.
      nonzero: Number of nonzero weights.
      sparsity: Fraction of weights equal to 0.
    """

    weights: int
    nonzero: int
    sparsity: float


class ModelSparsity(ZeroShare):
    """Sparsity of all kernels together, and of each kernel, keyed by parameter path."""

    layers: dict[str, ZeroShare]


def sparsity_of(params: Any) -> ModelSparsity | None:
    """Compute the sparsity of a model's kernels; None if no weight is 0.

    Args:
      params: Parameters, nested dicts; arrays with two or more dims are kernels.
    """
    kernels = {path: x for path, x in by_path(params).items() if x.ndim > 1}
    layers = {
        path: _share(x.size, int(jnp.count_nonzero(x))) for path, x in kernels.items()
    }
    weights = sum(one["weights"] for one in layers.values())
    nonzero = sum(one["nonzero"] for one in layers.values())
    if weights == nonzero:
        return None
    return {**_share(weights, nonzero), "layers": layers}


def describe_sparsity(found: ModelSparsity) -> dict[str, str]:
    """Table rows on the nonzero weights of all kernels together and of each kernel."""
    rows = {"all kernels": _describe(found)}
    return rows | {path: _describe(one) for path, one in found["layers"].items()}


def _share(weights: int, nonzero: int) -> ZeroShare:
    return {
        "weights": weights,
        "nonzero": nonzero,
        "sparsity": 1 - nonzero / weights,
    }


def _describe(share: ZeroShare) -> str:
    total = counted(share["weights"], "weight")
    return f"{share['nonzero']:,} of {total} are not 0: {share['sparsity']:.2%} sparse"
