"""How many weights of a model are exactly 0, by layer."""

from typing import Any, TypedDict

import jax.numpy as jnp

from jaxtrain.errors import counted
from jaxtrain.trees import by_path


class ZeroShare(TypedDict):
    """Weights of some kernels.

    Attributes:
      weights: Number of them.
      nonzero: Number of those that are not 0.
      sparsity: Part of them that is 0.
    """

    weights: int
    nonzero: int
    sparsity: float


class ModelSparsity(ZeroShare):
    """Weights of all kernels of a model, and of each by its path."""

    layers: dict[str, ZeroShare]


def sparsity_of(params: Any) -> ModelSparsity | None:
    """Return how sparse the kernels of a model are; None if none of them has a 0.

    Args:
      params: Parameters, nested dicts; kernels are those of two dims or more.
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
    """Return rows of a table: how many weights are left, of all kernels and of each."""
    rows = {"all kernels": _told(found)}
    return rows | {path: _told(one) for path, one in found["layers"].items()}


def _share(weights: int, nonzero: int) -> ZeroShare:
    return {
        "weights": weights,
        "nonzero": nonzero,
        "sparsity": 1 - nonzero / weights,
    }


def _told(share: ZeroShare) -> str:
    left = counted(share["weights"], "weight")
    return f"{share['nonzero']:,} of {left} are not 0: {share['sparsity']:.2%} sparse"
