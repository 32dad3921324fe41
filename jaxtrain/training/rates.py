"""Learning rates that differ from layer to layer: factors on that of the run."""

from collections.abc import Mapping

import jax

from jaxtrain.errors import UserError
from jaxtrain.models.base import Model
from jaxtrain.models.layer_paths import find_layers
from jaxtrain.training.frozen import Frozen
from jaxtrain.training.state import split_model


def make_rates(
    model: Model,
    layer_decay: float | None,
    rate_factors: Mapping[str, float],
    never: Frozen,
) -> dict[str, float]:
    """Return the factor on the learning rate of each parameter, by its path.

    Args:
      model: whose they are.
      layer_decay: piece i of n in a row has the factor layer_decay**(n - 1 - i), as in
        timm, whose groups of a ResNet are our pieces: the stem, each block, the head.
        None: 1.
      rate_factors: by patterns of layers; those that match a layer multiply.
      never: layers that are not trained at all.

    Returns:
      The factors; {} if all are 1.

    Raises:
      UserError: a pattern matches no layer that is trained.
    """
    if layer_decay is None and not rate_factors:
        return {}
    field = "optimizer.rate_factors"
    found = {p: find_layers(model, field, p) for p in rate_factors}
    for pattern, layers in found.items():
        if layers <= never.layers:
            raise UserError(
                f"{field}: {pattern!r} has no effect, as train.freeze freezes these "
                "layers throughout; leave it out"
            )
    last = len(model.pieces) - 1
    decay = 1.0 if layer_decay is None else layer_decay
    of_layer = {
        name: decay ** (last - index)
        for index, piece in enumerate(model.pieces)
        for name in piece.names
    }
    rates = {}
    for path, _ in jax.tree_util.tree_leaves_with_path(split_model(model)[1]):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        layer = name.rpartition("/")[0]
        rates[name] = of_layer[name.partition("/")[0]]
        for pattern, layers in found.items():
            rates[name] *= rate_factors[pattern] if layer in layers else 1.0
    return rates
