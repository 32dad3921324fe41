"""Bias correction of quantized kernels.

Rounding of kernels shifts the channel means of layer outputs. The shift, measured on
images, is added to the running mean of the batch norm after a layer, or subtracted from
the bias of a layer without a norm (Nagel et al. 2019, arXiv:1906.04721).
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from flax import nnx

from jaxtrain.dtypes import widen
from jaxtrain.inference.model import TrainedModel
from jaxtrain.models.batch_norm import BatchNorm
from jaxtrain.models.layers import Conv, Linear
from jaxtrain.plugins.quantization.passes import named_layers, of_batches, with_values
from jaxtrain.training.state import split_model
from jaxtrain.trees import by_path


def with_means_of(
    rounded: TrainedModel, model: TrainedModel, images: np.ndarray
) -> TrainedModel:
    """Correct biases and running means, to match the float model's channel means.

    Args:
      rounded: Quantized model with calibrated ranges.
      model: Original float model.
      images: Images to measure the means on, uint8 (n, H, W, C).
    """
    params, state = by_path(rounded.params), by_path(rounded.model_state)
    for path, shift in mean_shifts(rounded, model, images).items():
        is_norm = f"{path}/mean" in state
        values, name = (state, "mean") if is_norm else (params, "bias")
        old = np.asarray(values[f"{path}/{name}"])
        change = shift if is_norm else -shift
        values[f"{path}/{name}"] = (old + change).astype(old.dtype)
    return dataclasses.replace(
        rounded,
        params=with_values(rounded.params, params),
        model_state=with_values(rounded.model_state, state),
    )


def mean_shifts(
    rounded: TrainedModel, model: TrainedModel, images: np.ndarray
) -> dict[str, np.ndarray]:
    """Measure the shifts of channel means that are due to rounding, layer by layer.

    Shifts are measured at the inputs of batch norms, and at the outputs of layers with
    a bias and no norm. Each shift is subtracted before the next layer runs, so that it
    is due to the rounding of one layer only.

    Returns:
      Path of the norm or layer -> quantized mean - float mean, averaged over batches,
      float64 (channels,).
    """
    graphdefs = [split_model(m.description.abstract)[0] for m in (model, rounded)]

    def function(x: jax.Array, *weights: Any) -> dict[str, jax.Array]:
        networks = [
            nnx.merge(graphdef, *given, copy=True)
            for graphdef, given in zip(graphdefs, weights, strict=True)
        ]
        means: dict[str, jax.Array] = {}
        shifts: dict[str, jax.Array] = {}
        _measure(networks[0], means)
        _subtract_shifts(networks[1], means, shifts)
        for network in networks:
            network.eval()
            network(x)
        return shifts

    found = of_batches([model, rounded], images, function)
    return {
        path: np.mean([np.asarray(x[path], np.float64) for x in found], 0)
        for path in found[0]
    }


def _measure(network: nnx.Module, means: dict[str, jax.Array]) -> None:
    """Instrument a network to store its channel means in `means`, by layer path."""
    # `id` of a layer's output -> (path of the layer, output). The reference to the
    # output prevents reuse of its `id`.
    outputs: dict[int, tuple[str, jax.Array]] = {}

    def at_norm(path: str, x: jax.Array) -> jax.Array:
        # The shift is corrected in the norm's running mean, not in the layer's bias.
        layer_path, _ = outputs.pop(id(x), ("", x))
        means.pop(layer_path, None)
        means[path] = _channel_means(x)
        return x

    def at_layer(path: str, y: jax.Array) -> jax.Array:
        outputs[id(y)] = path, y
        means[path] = _channel_means(y)
        return y

    for path, layer in named_layers(network):
        if isinstance(layer, BatchNorm):
            layer.input_range = functools.partial(at_norm, path)
        elif isinstance(layer, Conv | Linear) and layer.bias is not None:
            layer.output_range = functools.partial(at_layer, path)


def _subtract_shifts(
    network: nnx.Module, means: Mapping[str, jax.Array], shifts: dict[str, jax.Array]
) -> None:
    """Instrument a network to measure and subtract the shifts of its channel means.

    Args:
      network: Quantized network to instrument.
      means: Channel means of the float network by layer path.
      shifts: Dict in which the shifts are stored, by layer path.
    """

    def subtract(path: str, then: Any, x: jax.Array) -> jax.Array:
        if path in means:
            shifts[path] = _channel_means(x) - means[path]
            x = x - shifts[path].astype(x.dtype)
        return x if then is None else then(x)

    for path, layer in named_layers(network):
        if isinstance(layer, BatchNorm):
            layer.input_range = functools.partial(subtract, path, None)
        elif isinstance(layer, Conv | Linear) and layer.bias is not None:
            then = layer.output_range
            layer.output_range = functools.partial(subtract, path, then)


def _channel_means(x: jax.Array) -> jax.Array:
    return widen(x).mean(range(x.ndim - 1))
