"""A trained model that computes with 8 bits, without training: ranges and biases.

The model is that of `model.quantize` (`jaxtrain.models.quantized`). Its ranges of
activations are chosen from what these are on training images. Rounded kernels move the
means of what layers put out: their biases, and the running means of batch norms, take
that back, measured on the same images (Nagel et al. 2019, arXiv:1906.04721).
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxtrain.dtypes import widen
from jaxtrain.errors import UserError
from jaxtrain.inference.model import TrainedModel, abstract_weights, make_model
from jaxtrain.models.batch_norm import BatchNorm
from jaxtrain.models.fake_quantization import ActivationRange
from jaxtrain.models.layers import Conv, Linear
from jaxtrain.tools.calibration import Method, Seen, choose_range
from jaxtrain.training.state import split_model
from jaxtrain.training.step import predict
from jaxtrain.trees import by_path

# Images that are computed at once, and values of an activation that each such batch
# gives to its sample.
BATCH, SAMPLE = 64, 4096
# Times that means are measured and taken back: what is taken back in one layer moves
# those behind it.
CORRECTIONS = 3
# `(path, array)`: keep what is found there.
Record = Callable[[str, jax.Array], None]


@dataclass(frozen=True, eq=False)
class Rounded:
    """A model in 8 bits, and how far it is from the one that it was made of.

    Attributes:
      model: The model.
      ranges: Ends of the ranges of activations, by their paths.
      difference: Root mean square of the differences of the outputs, as a part of that
        of the outputs, on images that nothing was chosen from.
    """

    model: TrainedModel
    ranges: Mapping[str, tuple[float, float]]
    difference: float


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
    return Rounded(rounded, ranges, difference(model, rounded, others))


def check(model: TrainedModel) -> None:
    """Check that a model can be rounded.

    Raises:
      UserError: It cannot.
    """
    about = model.description
    why = None
    if about.model.quantize is not None:
        why = "computes with 8 bits already: export it"
    elif about.members > 1:
        why = "is an ensemble, whose members have ranges of their own: give one of them"
    elif about.model.transform is not None:
        why = f"has been changed by model.transform = {about.model.transform!r}"
    elif model.readout is not None or model.finder is not None:
        why = "puts out numbers in the units of the data, for which 256 are too few"
    if why is not None:
        raise UserError(f"--workdir: this model {why}")


def find_ranges(
    model: TrainedModel, images: np.ndarray, method: Method
) -> dict[str, tuple[float, float]]:
    """Return a range for each activation that a model rounds, by their paths."""

    def watch(network: nnx.Module, record: Record) -> Callable[[], None]:
        for path, layer in _named(network):
            if isinstance(layer, ActivationRange):
                layer.observe = functools.partial(record, path)
        return lambda: None

    def summary(x: jax.Array) -> dict[str, jax.Array]:
        chosen = np.random.default_rng(0).integers(x.size, size=SAMPLE)
        values = widen(x)
        sample = values.reshape(-1)[chosen].astype(jnp.float32)
        return {"low": values.min(), "high": values.max(), "sample": sample}

    found = _observe(model, images, watch, summary)
    *_, last = found
    return {
        path: choose_range(
            Seen(
                float(min(seen["low"].min(), 0)),
                float(max(seen["high"].max(), 0)),
                seen["sample"].reshape(-1),
            ),
            # Of the outputs the largest count most of all.
            "minmax" if path == last else method,
        )
        for path, seen in found.items()
    }


def with_means_of(
    rounded: TrainedModel, model: TrainedModel, images: np.ndarray
) -> TrainedModel:
    """Return a rounded model whose layers put out the means that a model's do.

    What a norm takes may have another mean: its running mean moves as far.
    """
    wanted, norms = channel_means(model, images), by_path(model.model_state)
    for _ in range(CORRECTIONS):
        params, state = by_path(rounded.params), by_path(rounded.model_state)
        for path, mean in channel_means(rounded, images).items():
            change = mean - wanted[path]
            if f"{path}/mean" in state:
                old = np.asarray(norms[f"{path}/mean"])
                state[f"{path}/mean"] = (old + change).astype(old.dtype)
            else:
                old = np.asarray(params[f"{path}/bias"])
                params[f"{path}/bias"] = (old - change).astype(old.dtype)
        rounded = dataclasses.replace(
            rounded,
            params=_as(rounded.params, params),
            model_state=_as(rounded.model_state, state),
        )
    return rounded


def channel_means(model: TrainedModel, images: np.ndarray) -> dict[str, np.ndarray]:
    """Return the mean of each channel of what batch norms take and layers put out.

    Of convolutions and dense layers it is those with a bias and without a norm behind
    them, float64 (channels,) by the paths of the layers.
    """

    def watch(network: nnx.Module, record: Record) -> Callable[[], None]:
        put_out: dict[int, tuple[str, jax.Array]] = {}

        def at_norm(path: str, x: jax.Array) -> jax.Array:
            put_out.pop(id(x), None)
            record(path, x)
            return x

        def at_layer(path: str, then: Any, y: jax.Array) -> jax.Array:
            put_out[id(y)] = path, y
            return y if then is None else then(y)

        for path, layer in _named(network):
            if isinstance(layer, BatchNorm):
                layer.input_range = functools.partial(at_norm, path)
            elif isinstance(layer, Conv | Linear) and layer.bias is not None:
                then = layer.output_range
                layer.output_range = functools.partial(at_layer, path, then)

        def finish() -> None:
            for path, y in put_out.values():
                record(path, y)

        return finish

    def summary(x: jax.Array) -> dict[str, jax.Array]:
        return {"mean": widen(x).mean(range(x.ndim - 1))}

    found = _observe(model, images, watch, summary)
    return {path: x["mean"].astype(np.float64).mean(0) for path, x in found.items()}


def difference(model: TrainedModel, other: TrainedModel, images: np.ndarray) -> float:
    """Return how far the outputs of another model are (see `Rounded`)."""
    squares = [0.0, 0.0]
    outputs = [_all(m, images, _outputs_of(m)) for m in (model, other)]
    for ours, theirs in zip(*outputs, strict=True):
        for x, y in zip(*map(jax.tree.leaves, (ours, theirs)), strict=True):
            wide = np.asarray(x, np.float64), np.asarray(y, np.float64)
            squares[0] += np.square(wide[0] - wide[1]).sum()
            squares[1] += np.square(wide[0]).sum()
    return float(np.sqrt(squares[0] / max(squares[1], np.finfo(float).tiny)))


def _outputs_of(model: TrainedModel) -> Callable[..., Any]:
    graphdef = split_model(model.description.abstract)[0]
    return lambda params, state, x: predict(graphdef, params, state, x)


def _observe(
    model: TrainedModel,
    images: np.ndarray,
    watch: Callable[[nnx.Module, Record], Callable[[], None]],
    summary: Callable[[jax.Array], dict[str, jax.Array]],
) -> dict[str, dict[str, np.ndarray]]:
    """Return summaries of arrays in a model, stacked over batches.

    Args:
      model: The model, as it is evaluated.
      images: uint8 (n, H, W, C).
      watch: `(network, record) -> finish`: has layers record arrays, by a path for
        each; `finish` is called behind the outputs.
      summary: Summary of an array.

    Returns:
      Summaries by paths, in the order that the model computes.
    """
    graphdef, order = split_model(model.description.abstract)[0], []

    def function(params: Any, state: Any, x: jax.Array) -> Any:
        network = nnx.merge(graphdef, params, state, copy=True)
        network.eval()
        found: dict[str, dict[str, jax.Array]] = {}

        def record(path: str, array: jax.Array) -> None:
            found[path] = summary(array)

        finish = watch(network, record)
        network(x)
        finish()
        order[:] = found
        return found

    batches = _all(model, images, function)
    return {
        path: {name: np.stack([b[path][name] for b in batches]) for name in found}
        for path in order
        for found in (batches[0][path],)
    }


def _all(model: TrainedModel, images: np.ndarray, function: Any) -> list[Any]:
    """Return what a function makes of each batch of images, whole ones alone.

    Too few images for one are repeated.
    """
    size = model.share(min(BATCH, len(images)))
    images = np.resize(images, (max(size, len(images)), *images.shape[1:]))
    program = model.compiled(function)
    starts = range(0, len(images) - size + 1, size)
    with jax.default_matmul_precision(model.policy.products):
        return [
            jax.device_get(model.start(program, images[start : start + size], size))
            for start in starts
        ]


def _named(network: nnx.Module) -> Iterator[tuple[str, nnx.Module]]:
    for path, layer in nnx.iter_modules(network):
        yield "/".join(map(str, path)), layer


def _as(tree: Any, values: Mapping[str, Any]) -> Any:
    """Return a tree with other values, by their paths."""
    return jax.tree.structure(tree).unflatten(values[path] for path in by_path(tree))
