"""Learning rates that differ from layer to layer: factors on that of the run."""

from jaxtrain.models.base import Model
from jaxtrain.training.state import split_model
from jaxtrain.trees import by_path


def make_rates(model: Model, layer_decay: float | None) -> dict[str, float]:
    """Return the factor on the learning rate of each parameter, by its path.

    Args:
      model: Model, which may be abstract.
      layer_decay: Factor from each piece to the one before: layer_decay**(n - 1 - i)
        for piece i of n, as in timm, whose groups of a ResNet are our pieces: the stem,
        each block, the head. None: 1.

    Returns:
      The factors; {} if all are 1.
    """
    if layer_decay is None:
        return {}
    last = len(model.pieces) - 1
    of_layer = {
        name: layer_decay ** (last - index)
        for index, piece in enumerate(model.pieces)
        for name in piece.names
    }
    names = by_path(split_model(model)[1])
    return {name: of_layer[name.partition("/")[0]] for name in names}
