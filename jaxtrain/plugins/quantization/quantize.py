"""A trained model that computes with 8 bits, without training: ranges and biases.

The model is that of `model.quantize` (`quantized.py`). Its ranges of activations are
chosen from what these are on training images. Rounded kernels move the means of what
layers put out: their biases, and the running means of batch norms, take that back,
measured on the same images (Nagel et al. 2019, arXiv:1906.04721).
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxtrain.dtypes import widen
from jaxtrain.errors import UserError
from jaxtrain.inference.model import TrainedModel, make_model
from jaxtrain.models.batch_norm import BatchNorm
from jaxtrain.models.layers import Conv, Linear
from jaxtrain.parallel import data_sharding
from jaxtrain.plugins.quantization.fake_quantization import ActivationRange
from jaxtrain.plugins.quantization.range_search import Method, Seen, choose_range
from jaxtrain.training.forward import predict
from jaxtrain.training.state import split_model
from jaxtrain.trees import by_path
from jaxtrain.weights.stored import abstract_weights

# Images that are computed at once, and values of an activation that each such batch
# gives to its sample.
BATCH, SAMPLE = 64, 4096


@dataclass(frozen=True, eq=False)
class Rounded:
    """A model in 8 bits, and how far it is from the one that it was made of.

    Attributes:
      model: The model.
      ranges: Ends of the ranges of activations, by their paths.
      difference: Root mean square of the differences of the outputs, as a part of that
        of the outputs, on images that nothing was chosen from.
      agreement: Share of these images that keep their class; of class maps the share of
        its pixels that a class keeps, the mean over classes. None: there are none.
    """

    model: TrainedModel
    ranges: Mapping[str, tuple[float, float]]
    difference: float
    agreement: float | None


def quantize(
    model: TrainedModel, images: np.ndarray, others: np.ndarray, method: Method
) -> Rounded:
    """Return a model in 8 bits.

    Args:
      model: Trained model, in floats.
      images: Training images that ranges and means are of, uint8 (n, H, W, C).
      others: Images that the outputs are compared on, uint8 (m, H, W, C).
      method: How ranges are chosen.

    Raises:
      UserError: The model cannot be rounded.
    """
    check(model)
    about = model.description
    config = dataclasses.replace(about.model, quantize="int8")
    about = dataclasses.replace(about, model=config)
    origin = {"step": None, "run": None, "weights": None}
    zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), abstract_weights(about))
    state = {**by_path(zeros[1]), **by_path(model.model_state)}
    empty = make_model(
        about, model.params, _as(zeros[1], state), origin, "the model in 8 bits"
    )
    ranges = find_ranges(empty, images, method)
    for path, ends in ranges.items():
        state[f"{path}/low"], state[f"{path}/high"] = map(np.float32, ends)
    rounded = dataclasses.replace(empty, model_state=_as(zeros[1], state))
    rounded = with_means_of(rounded, model, images)
    return Rounded(rounded, ranges, *compare(model, rounded, others))


def check(model: TrainedModel) -> None:
    """Check that a model can be rounded.

    Raises:
      UserError: It cannot.
    """
    about = model.description
    about.check_is_one("--workdir: this model")
    why = None
    if about.model.quantize is not None:
        why = "computes with 8 bits already: export it"
    elif about.model.transform is not None:
        why = f"has been changed by model.transform = {about.model.transform!r}"
    elif model.decoder.in_units is not None:
        why = "puts out numbers in the units of the data, for which 256 are too few"
    if why is not None:
        raise UserError(f"--workdir: this model {why}")


def find_ranges(
    model: TrainedModel, images: np.ndarray, method: Method
) -> dict[str, tuple[float, float]]:
    """Return a range for each activation that a model rounds, by their paths."""
    graphdef, order = split_model(model.description.abstract)[0], []

    def function(x: jax.Array, weights: Any) -> dict[str, Any]:
        network = nnx.merge(graphdef, *weights, copy=True)
        network.eval()
        found: dict[str, Any] = {}

        def observe(path: str, x: jax.Array) -> None:
            chosen = np.random.default_rng(0).integers(x.size, size=SAMPLE)
            sample = x.reshape(-1)[chosen].astype(jnp.float32)
            found[path] = x.min(), x.max(), sample

        for path, layer in _named(network):
            if isinstance(layer, ActivationRange):
                layer.observe = functools.partial(observe, path)
        network(x)
        order[:] = found
        return found

    batches = _all([model], images, function)
    ranges = {}
    for path in order:
        lows, highs, samples = zip(*(batch[path] for batch in batches), strict=True)
        low, high = float(min(0, *lows)), float(max(0, *highs))
        seen = Seen(low, high, np.concatenate(samples))
        # Of the outputs the largest count most of all.
        ranges[path] = choose_range(seen, "minmax" if path == order[-1] else method)
    return ranges


def with_means_of(
    rounded: TrainedModel, model: TrainedModel, images: np.ndarray
) -> TrainedModel:
    """Return a rounded model whose layers put out the means that a model's do."""
    params, state = by_path(rounded.params), by_path(rounded.model_state)
    for path, shift in mean_shifts(rounded, model, images).items():
        is_norm = f"{path}/mean" in state
        values, name = (state, "mean") if is_norm else (params, "bias")
        old = np.asarray(values[f"{path}/{name}"])
        change = shift if is_norm else -shift
        values[f"{path}/{name}"] = (old + change).astype(old.dtype)
    return dataclasses.replace(
        rounded,
        params=_as(rounded.params, params),
        model_state=_as(rounded.model_state, state),
    )


def mean_shifts(
    rounded: TrainedModel, model: TrainedModel, images: np.ndarray
) -> dict[str, np.ndarray]:
    """Return how far rounding moves the means of channels, layer by layer.

    They are of what batch norms take, and of what layers with a bias and without a norm
    behind them put out. Each is taken back at once, in both models on one batch, so
    that those behind it are of their own rounding alone.

    Returns:
      Means over batches, float64 (channels,) by the paths of norms and layers.
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
        _take_back(networks[1], means, shifts)
        for network in networks:
            network.eval()
            network(x)
        return shifts

    found = _all([model, rounded], images, function)
    return {
        path: np.mean([np.asarray(x[path], np.float64) for x in found], 0)
        for path in found[0]
    }


def _measure(network: nnx.Module, means: dict[str, jax.Array]) -> None:
    """Have a network write the means of channels, by the paths of its layers."""
    put_out: dict[int, tuple[str, jax.Array]] = {}

    def at_norm(path: str, x: jax.Array) -> jax.Array:
        # The norm takes its mean off, and not the layer in front.
        in_front, _ = put_out.pop(id(x), ("", x))
        means.pop(in_front, None)
        means[path] = _channel_means(x)
        return x

    def at_layer(path: str, y: jax.Array) -> jax.Array:
        put_out[id(y)] = path, y
        means[path] = _channel_means(y)
        return y

    for path, layer in _named(network):
        if isinstance(layer, BatchNorm):
            layer.input_range = functools.partial(at_norm, path)
        elif isinstance(layer, Conv | Linear) and layer.bias is not None:
            layer.output_range = functools.partial(at_layer, path)


def _take_back(
    network: nnx.Module, means: Mapping[str, jax.Array], shifts: dict[str, jax.Array]
) -> None:
    """Have a network subtract, and write, how far its means are from others."""

    def back(path: str, then: Any, x: jax.Array) -> jax.Array:
        if path in means:
            shifts[path] = _channel_means(x) - means[path]
            x = x - shifts[path].astype(x.dtype)
        return x if then is None else then(x)

    for path, layer in _named(network):
        if isinstance(layer, BatchNorm):
            layer.input_range = functools.partial(back, path, None)
        elif isinstance(layer, Conv | Linear) and layer.bias is not None:
            then = layer.output_range
            layer.output_range = functools.partial(back, path, then)


def _channel_means(x: jax.Array) -> jax.Array:
    return widen(x).mean(range(x.ndim - 1))


def compare(
    model: TrainedModel, other: TrainedModel, images: np.ndarray
) -> tuple[float, float | None]:
    """Return `difference` and `agreement` of another model (see `Rounded`)."""
    squares = [0.0, 0.0]
    outputs = [_all([m], images, _outputs_of(m)) for m in (model, other)]
    for ours, theirs in zip(*outputs, strict=True):
        for x, y in zip(*map(jax.tree.leaves, (ours, theirs)), strict=True):
            wide = np.asarray(x, np.float64), np.asarray(y, np.float64)
            squares[0] += np.square(wide[0] - wide[1]).sum()
            squares[1] += np.square(wide[0]).sum()
    difference = float(np.sqrt(squares[0] / max(squares[1], np.finfo(float).tiny)))
    if model.class_names is None:
        return difference, None
    ours, theirs = map(np.concatenate, outputs)
    return difference, model.decoder.agreement(theirs, ours)


def _outputs_of(model: TrainedModel) -> Callable[..., Any]:
    graphdef = split_model(model.description.abstract)[0]

    def outputs(x: jax.Array, weights: tuple[Any, Any]) -> Any:
        params, state = weights
        return predict(graphdef, params, state, x)

    return outputs


def _all(
    models: Sequence[TrainedModel], images: np.ndarray, function: Callable[..., Any]
) -> list[Any]:
    """Return what `function(images, *weights)` makes of each whole batch of images.

    Too few images for one are repeated.

    Args:
      models: Models whose weights it takes, which see images alike.
      images: Images of all batches, uint8 (n, H, W, C).
      function: Function of normalised images, to be compiled.
    """
    model = models[0]

    def run(pixels: jax.Array, *weights: Any) -> Any:
        with jax.default_matmul_precision(model.policy.products):
            return function(model.prepare(pixels[0]), *weights)

    program = jax.jit(run, out_shardings=data_sharding.replicated(model.mesh))
    size = model.share(min(BATCH, len(images)))
    images = np.resize(images, (max(size, len(images)), *images.shape[1:]))
    found = []
    for start in range(0, len(images) - size + 1, size):
        pixels = images[None, start : start + size]
        batch = data_sharding.put_batch(model.mesh, pixels, size)
        found.append(jax.device_get(program(batch, *(m.placed for m in models))))
    return found


def _named(network: nnx.Module) -> Iterator[tuple[str, nnx.Module]]:
    for path, layer in nnx.iter_modules(network):
        yield "/".join(map(str, path)), layer


def _as(tree: Any, values: Mapping[str, Any]) -> Any:
    """Return a tree with other values, by their paths."""
    return jax.tree.structure(tree).unflatten(values[path] for path in by_path(tree))
