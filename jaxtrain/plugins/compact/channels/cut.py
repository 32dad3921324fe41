"""Removal of channels from a model's arrays and layers."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from flax import nnx

from jaxtrain.errors import UserError, counted, nearest
from jaxtrain.models.base import Model
from jaxtrain.models.blueprint import ImagesOf
from jaxtrain.plugins.compact.channels.groups import (
    NUM_IMAGES,
    Axis,
    ChannelMap,
    channels_of,
)

FIELD = "model.channels"


def with_channels(model: Model, wanted: Mapping[str, int], images: ImagesOf) -> Model:
    """Reduce a model to the first channels of each group, in place.

    Args:
      model: Model to change.
      wanted: First layer of a group -> number of channels; other groups are unchanged.
      images: Function from a number of images to their shape and dtype.

    Raises:
      UserError: A layer is unknown, or a number of channels is invalid.
    """
    channels = channels_of(model, images(NUM_IMAGES))
    cut(model, channels.indices_of(first_units(channels, wanted)))
    return model


def first_units(
    channels: ChannelMap, wanted: Mapping[str, int]
) -> dict[str, np.ndarray]:
    """Return the indices of each group's first units, which hold `wanted` channels.

    Raises:
      UserError: A group is unknown, or a number of channels is invalid.
    """
    units = {}
    for name, number in wanted.items():
        if name not in channels.groups:
            known = list(channels.groups)
            unpruned = channels.unpruned
            why = f" ({unpruned[name]})" if name in unpruned else ""
            layers = counted(len(known), "layer")
            raise UserError(
                f"{FIELD}: {name} = {number}: channels of this layer cannot be "
                f"removed{why}; name one of {layers}, such as "
                f"{known[0]}{nearest(name, known, num=3)}"
            )
        group = channels.groups[name]
        if number % group.unit or not group.unit <= number <= group.channels:
            steps = f", in steps of {group.unit}" if group.unit > 1 else ""
            raise UserError(
                f"{FIELD}: {name} = {number}: expected {group.unit} to "
                f"{group.channels}{steps}"
            )
        units[name] = np.arange(number // group.unit)
    return units


def cut(model: Model, indices: Mapping[Axis, np.ndarray]) -> None:
    """Slice the arrays of a model, and update the sizes of its layers, in place.

    Args:
      model: Model to change.
      indices: Path and dim of an array -> retained indices; other dims are unchanged.
    """
    layers = [layer for _, layer in nnx.iter_modules(model)]
    per_group = {
        id(layer): layer.out_features // layer.feature_group_count
        for layer in layers
        if isinstance(layer, nnx.Conv) and layer.feature_group_count > 1
    }
    for path, variable in nnx.iter_graph(model):
        if isinstance(variable, nnx.Variable):
            name = "/".join(map(str, path))
            variable.set_value(take(name, variable[...], indices))
    for layer in layers:
        if isinstance(layer, nnx.Conv):
            *_, taken, made = layer.kernel.shape
            number = made // per_group.get(id(layer), made)
            layer.in_features, layer.out_features = taken * number, made
            layer.feature_group_count = number
        elif isinstance(layer, nnx.Linear):
            layer.in_features, layer.out_features = layer.kernel.shape
        elif isinstance(layer, nnx.BatchNorm) and layer.scale is not None:
            layer.num_features = len(layer.scale)


def take(name: str, array: Any, indices: Mapping[Axis, np.ndarray]) -> Any:
    """Select the retained indices of an array's dims.

    Args:
      name: Path of the array.
      array: NumPy or JAX array, which may be traced.
      indices: Path and dim of an array -> retained indices; other dims are unchanged.
    """
    for dim in range(getattr(array, "ndim", 0)):
        if (name, dim) in indices:
            array = array.take(indices[name, dim], axis=dim)
    return array
