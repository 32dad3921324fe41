"""Quantization-aware training: placement of fake quantization by analysis of a trace.

A runtime computes a layer in integers if its input, kernel and output are quantized.
All kernels of convolutions and dense layers are quantized. Activations can be quantized
at the input of a layer, at its output, and at the input of a piece of the model, such
as a residual block. Some of these points are selected in a trace of the model, so that

- the input of a layer is quantized exactly once, possibly before max pooling, ReLU and
  reshapes, which preserve quantized values;
- the output of a convolution is quantized after its batch norm and ReLU, which runtimes
  fuse with the convolution, and before any other function;
- an input shared by several layers is quantized before them;
- the outputs of the model are quantized.

A runtime adds a bias as an integer in the scale of the accumulator. Evaluations round
biases in the same way if the layer and its input range are in the same piece of the
model. If only exported files had rounded biases, one activation in hundreds would
differ by one level, and the outputs of deep models by several levels.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from jaxtrain.errors import UserError
from jaxtrain.models.base import Model, Piece
from jaxtrain.models.blueprint import ImagesOf
from jaxtrain.models.layers import Conv, Linear
from jaxtrain.plugins.quantization.fake_quantization import (
    ActivationRange,
    fake_quantize_bias,
    promote_rounded,
)
from jaxtrain.plugins.quantization.trace import (
    CASTS,
    KEEPING,
    LAYER_INPUT,
    LAYER_OUTPUT,
    NORM,
    PIECE,
    RANGES,
    Value,
    named_layers,
    only_place,
    pieces_of,
    places_of,
    traced,
)


class PieceRanges(nnx.Module):
    """Quantizers of a piece's inputs, one `ActivationRange` per quantized array."""

    def __init__(self, numbers: Sequence[int], dtype: Any):
        self.ranges = nnx.data(
            {f"array{number}": ActivationRange(dtype) for number in numbers}
        )

    def __call__(self, x: Any) -> Any:
        arrays, tree = jax.tree.flatten(x)
        return tree.unflatten(
            self.ranges[f"array{i}"](array) if f"array{i}" in self.ranges else array
            for i, array in enumerate(arrays)
        )


class _Bias(NamedTuple):
    """Module paths for rounding a bias to the scale of its accumulator.

    Attributes:
      layer: Path of the layer with the bias.
      norm: Path of the batch norm that is folded into the layer, or None.
      given: Path of the activation range of the layer's input.
    """

    layer: str
    norm: str | None
    given: str

    def is_within(self, names: Sequence[str]) -> bool:
        """Whether all paths start with one of the layer names."""
        return all(path.split("/")[0] in names for path in self if path is not None)


def quantized(model: Model, precision: str, images: ImagesOf) -> Model:
    """Insert fake quantization into a model, in place.

    Args:
      model: Model that is built from layers of `jaxtrain.models.layers`.
      precision: Integer format of weights and activations; int8 only.
      images: Function from a number of images to their shape and dtype.

    Raises:
      UserError: The model uses weights outside of `jaxtrain.models.layers`, or calls a
        layer several times.
    """
    del precision
    layers = dict(named_layers(model))
    image = images(1)
    values = traced(model, layers, image)
    counts: dict[tuple[str, str], int] = {}
    for value in values:
        if value.place is not None:
            counts[value.place] = counts.get(value.place, 0) + 1
    repeated = [name for (kind, name), n in counts.items() if n > 1 and kind != PIECE]
    if repeated:
        raise UserError(
            f"model.quantize: {type(model).__name__} calls the layer {repeated[0]!r} "
            "several times, but a layer has only one activation range: leave "
            "model.quantize out, or choose another model"
        )
    _check_products(model, values)
    places = places_of(values)
    for name, layer in layers.items():
        if isinstance(layer, Conv | Linear) and (LAYER_INPUT, name) in counts:
            layer.promote_dtype = promote_rounded
        if (LAYER_INPUT, name) in places:
            layer.input_range = nnx.data(ActivationRange(layer.dtype))
        if (LAYER_OUTPUT, name) in places:
            layer.output_range = nnx.data(ActivationRange(layer.dtype))
    numbers: dict[int, list[int]] = {}
    for _, name in (place for place in places if place[0] == PIECE):
        index, number = map(int, name.split("/"))
        numbers.setdefault(index + 1, []).append(number)
    biases, pieces = list(_biases(model, values, places)), []
    for index, piece in enumerate(pieces_of(model)):
        names, apply = piece.names, piece.apply
        if index in numbers:
            name = _ranges_name(model, index)
            setattr(model, name, PieceRanges(sorted(numbers[index]), image.dtype))
            names, apply = (*names, name), _rounded_first(apply)
        own = [bias for bias in biases if bias.is_within(names)]
        if own:
            apply = _with_integer_biases(apply, names, own)
        pieces.append(Piece(names, apply))
    model.pieces = (*pieces, *model.pieces[len(pieces) :])
    return model


def _ranges_name(model: Model, index: int) -> str:
    """Return the name of the `PieceRanges` of a piece."""
    return "_".join(model.pieces[index].names or (f"piece{index}",)) + RANGES


def _rounded_first(apply: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `apply` of a piece whose last layer is a `PieceRanges`, to quantize inputs.

    The original `apply` is called without this layer.
    """

    @functools.wraps(apply)
    def rounded(*arguments: Any) -> Any:
        *own, ranges, x, rngs = arguments
        return apply(*own, ranges(x), rngs)

    return rounded


def _with_integer_biases(
    apply: Callable[..., Any], names: Sequence[str], biases: Sequence[_Bias]
) -> Callable[..., Any]:
    """Wrap a piece's `apply` to round the biases in evaluation, as in exported files.

    Biases are not rounded in training: the levels of a bias are hundreds of times
    closer together than the levels of an activation.
    """

    @functools.wraps(apply)
    def rounded(*arguments: Any) -> Any:
        *own, _, rngs = arguments
        if rngs is not None:
            return apply(*arguments)
        modules: dict[str, Any] = {
            "/".join([name, *map(str, path)]): module
            for name, layer in zip(names, own, strict=True)
            for path, module in nnx.iter_modules(layer)
        }
        before = []
        for bias in biases:
            layer, given = modules[bias.layer], modules[bias.given]
            norm = modules[bias.norm] if bias.norm else None
            holder = (norm or layer).bias
            if holder is not None:
                before.append((holder, holder[...]))
                holder.set_value(_integer_bias(layer, norm, given))
        outputs = apply(*arguments)
        for holder, value in before:
            holder.set_value(value)
        return outputs

    return rounded


def _integer_bias(layer: Any, norm: Any, given: ActivationRange) -> jax.Array:
    """Return the rounded bias of a layer or of the norm after it, (channels,)."""
    kernel = layer.kernel[...]
    ends = given.low[...], given.high[...]
    if norm is None:
        bias = layer.bias[...]
        return fake_quantize_bias(bias, kernel, jnp.ones_like(bias), *ends)
    mean, inverse_std = norm.running()
    factor, bias = inverse_std * norm.scale[...], norm.bias[...]
    offset = mean if layer.bias is None else mean - layer.bias[...]
    folded = bias - offset * factor
    found = fake_quantize_bias(folded, kernel, factor, *ends)
    return (bias + jax.lax.stop_gradient(found - folded)).astype(bias.dtype)


def _biases(
    model: Model, values: Sequence[Value], places: set[tuple[str, str]]
) -> Iterator[_Bias]:
    """Yield the biases of the layers whose input has a single activation range."""
    layer_outputs = {
        x.place[1]: x for x in values if x.place and x.place[0] == LAYER_OUTPUT
    }
    for value in values:
        if value.place is None or value.place[0] != LAYER_INPUT:
            continue
        name, given = value.place[1], _range_of(model, value, places)
        if given is not None and name in layer_outputs:
            found = only_place(layer_outputs[name], CASTS)
            kind, norm = (found and found.place) or (None, None)
            yield _Bias(name, norm if kind == NORM else None, given)


def _range_of(model: Model, value: Value, places: set[tuple[str, str]]) -> str | None:
    """Return the path of the range that quantizes a value; None if several do."""
    while value.place not in places:
        if len(value.data) != 1 or not (value.place or value.op in KEEPING):
            return None
        (value,) = value.data
    assert value.place is not None
    kind, name = value.place
    if kind != PIECE:
        return f"{name}/{'input' if kind == LAYER_INPUT else 'output'}_range"
    index, number = map(int, name.split("/"))
    return f"{_ranges_name(model, index + 1)}/ranges/array{number}"


def _check_products(model: Model, values: Sequence[Value]) -> None:
    """Check that all convolutions and matrix products belong to supported layers.

    Raises:
      UserError: An operation with weights is computed outside of supported layers.
    """
    for value in values:
        if value.op not in ("conv_general_dilated", "dot_general"):
            continue
        weights = [x for x in value.inputs if x.of_weights and not x.of_images]
        if not (value.of_images and weights):
            continue
        x = next(x for x in value.inputs if x.of_images)
        while x.place is None and x.op in (*CASTS, "reshape", "transpose"):
            (x,) = x.data
        if x.place is None or x.place[0] != LAYER_INPUT:
            where = f"in {value.where!r}" if value.where else "outside its layers"
            raise UserError(
                f"model.quantize: {type(model).__name__} multiplies by weights "
                f"{where}, but quantization supports only weights of layers created "
                "with jaxtrain.models.layers.Layers: create such a layer for the "
                "weights, or leave model.quantize out"
            )
