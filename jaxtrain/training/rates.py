"""Learning rates that differ from layer to layer: factors on that of the run."""

from collections.abc import Mapping

from jaxtrain.errors import UserError
from jaxtrain.models.base import Model
from jaxtrain.models.layer_paths import find_layers
from jaxtrain.training.frozen import Frozen
from jaxtrain.training.state import split_model
from jaxtrain.trees import by_path


def make_rates(
    model: Model,
    layer_decay: float | None,
    rate_factors: Mapping[str, float],
    never: Frozen,
) -> dict[str, float]:
    """Return the factor on the learning rate of each parameter, by its path.

    Args:
      model: Model, which may be abstract.
      layer_decay: Factor from each piece to the one before: layer_decay**(n - 1 - i)
        for piece i of n, as in timm, whose groups of a ResNet are our pieces: the stem,
        each block, the head. None: 1.
      rate_factors: Factors by patterns of layers; those that match a layer multiply.
      never: Layers that are not trained at all.

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
    for name in by_path(split_model(model)[1]):
        layer = name.rpartition("/")[0]
        rates[name] = of_layer[name.partition("/")[0]]
        for pattern, layers in found.items():
            rates[name] *= rate_factors[pattern] if layer in layers else 1.0
    return rates
