"""Selection of the kernels to prune."""

from collections.abc import Mapping
from typing import Any

from jaxtrain.errors import UserError
from jaxtrain.models.base import Model
from jaxtrain.models.centres import CENTRES
from jaxtrain.models.layer_paths import find_layers, layer_paths
from jaxtrain.plugins.pruning.config import PruneConfig
from jaxtrain.training.frozen import Frozen
from jaxtrain.trees import by_path


def find_kernels(
    config: PruneConfig, model: Model, params: Any, never: Frozen
) -> tuple[str, ...]:
    """Find the paths of the parameters to prune, in the order of the tree.

    Kernels are arrays of two or more dims, as for weight decay. By default, the first
    layer, the head and depthwise kernels are excluded: they have few weights, and are
    sensitive to pruning. An N:M pattern also excludes kernels whose number of input
    channels is not a multiple of M.

    Args:
      config: Section `prune` of the config.
      model: Model with the layers.
      params: Parameters of the model, concrete or abstract.
      never: Layers that are frozen throughout the run, which are not pruned.

    Raises:
      UserError: There is no kernel to prune.
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
            f"{option}: the model has no kernels to prune; name other layers in "
            f"prune.layers, or leave {option} out. Frozen layers are never pruned, and "
            "by default neither are the first layer, the head and depthwise "
            "convolutions. A pattern N:M requires a multiple of M input channels"
        )
    return tuple(path for path in arrays if path in found)


def _is_depthwise(shape: tuple[int, ...]) -> bool:
    return len(shape) == 4 and shape[2] == 1


def _first_and_last(model: Model, layer_of: Mapping[str, str]) -> set[str]:
    """Return the paths of the kernels of the first layer and the head."""
    layers = {*layer_of.values()}
    first = next(path for path in layer_paths(model) if path in layers)
    ends = [piece for piece in model.pieces if CENTRES not in piece.names][-1].names
    return {
        path
        for path, layer in layer_of.items()
        if layer == first or path.partition("/")[0] in (*ends, CENTRES)
    }
