"""Layer-wise learning rates, as factors on the learning rate of the run."""

from collections.abc import Mapping
from typing import Any

import jax
import optax

from jaxtrain.models.base import Model
from jaxtrain.models.layer_paths import find_params
from jaxtrain.training.state import split_model
from jaxtrain.trees import by_path, path_name


def make_rates(
    model: Model, layer_decay: float | Mapping[str, float] | None
) -> dict[str, float]:
    """Compute the learning-rate factors of the parameters, keyed by parameter path.

    Args:
      model: Model, which may be abstract.
      layer_decay: A number is a layer-wise decay, as in timm: piece i of n has the
        factor layer_decay**(n - 1 - i). The pieces of a ResNet (stem, each block, head)
        are timm's layer groups. A mapping has factors keyed by path pattern; the last
        matching pattern applies, and parameters without a match have the factor 1. None
        means 1 for all parameters.

    Returns:
      The factors, keyed by parameter path; {} if all are 1.

    Raises:
      UserError: A pattern matches no parameter.
    """
    if layer_decay is None:
        return {}
    names = by_path(split_model(model)[1])
    if isinstance(layer_decay, Mapping):
        rates = dict.fromkeys(names, 1.0)
        for pattern, factor in layer_decay.items():
            found = find_params(model, "optimizer.layer_decay", pattern)
            rates |= dict.fromkeys(found, factor)
        return rates
    last = len(model.pieces) - 1
    of_layer = {
        name: layer_decay ** (last - index)
        for index, piece in enumerate(model.pieces)
        for name in piece.names
    }
    return {name: of_layer[name.partition("/")[0]] for name in names}


def with_rates(
    tx: optax.GradientTransformationExtraArgs, rates: Mapping[str, float]
) -> optax.GradientTransformationExtraArgs:
    """Multiply the updates of `tx` by factors; its state structure is unchanged.

    This is equivalent to learning rates per parameter, as the updates of all supported
    optimizers are proportional to the learning rate.

    Args:
      tx: Optimizer whose updates are scaled.
      rates: Factors, keyed by parameter path; {} means 1 for all parameters.
    """
    if not rates:
        return tx

    def update(
        updates: Any, state: Any, params: Any = None, **extra: Any
    ) -> tuple[Any, Any]:
        updates, state = tx.update(updates, state, params, **extra)
        factored = jax.tree_util.tree_map_with_path(
            lambda path, update: update * rates[path_name(path)], updates
        )
        return factored, state

    return optax.GradientTransformationExtraArgs(tx.init, update)
