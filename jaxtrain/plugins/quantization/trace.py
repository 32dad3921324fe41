"""Analysis of a model's trace: insertion points of fake quantization."""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from jax.extend import core

from jaxtrain import scopes
from jaxtrain.models.base import Model, Piece
from jaxtrain.models.batch_norm import BatchNorm
from jaxtrain.models.centres import CENTRES
from jaxtrain.models.ranged import Ranged

# Types of insertion points: input of a layer, output of a layer, input of a piece.
LAYER_INPUT, LAYER_OUTPUT, PIECE = "layer input", "layer output", "piece"
# Inputs of batch norms are marked but not quantized: a norm is folded into the layer
# before it.
NORM = "norm"
# Suffix of the names of `PieceRanges` layers.
RANGES = "_ranges"
# Names of primitive parameters that hold a called jaxpr.
CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr")
CASTS = ("convert_element_type", "copy", "stop_gradient", "optimization_barrier")
# Range-preserving primitives: outputs are input values, or 0.
KEEPING = (
    *CASTS,
    *("reshape", "transpose", "squeeze", "slice", "rev", "broadcast_in_dim"),
    *("expand_dims", "reduce_window_max", "reduce_max", "max"),
)
# Primitives that runtimes fuse with the layer before them.
FUSED = (*KEEPING, "min", "clamp")


@dataclass(eq=False)
class Value:
    """An array in a trace.

    Attributes:
      op: Name of the primitive that computes the array; "" for inputs and constants.
      inputs: Inputs of the primitive.
      of_images: Whether the array depends on the images.
      of_weights: Whether the array depends on an array of the model.
      place: Type and name of the insertion point that the array marks, or None.
      where: Name scope in the trace.
      users: Arrays computed by primitives that take this array as an input.
    """

    op: str
    inputs: tuple["Value", ...] = ()
    of_images: bool = False
    of_weights: bool = False
    place: tuple[str, str] | None = None
    where: str = ""
    users: list["Value"] = field(default_factory=list)

    @property
    def data(self) -> tuple["Value", ...]:
        """Inputs that depend on the images."""
        return tuple(x for x in self.inputs if x.of_images)


def named_layers(model: Model) -> Iterator[tuple[str, Any]]:
    """Yield (path, layer) of each `Ranged` layer that evaluations use."""
    for piece in pieces_of(model):
        for name in piece.names:
            for path, layer in nnx.iter_modules(getattr(model, name)):
                if isinstance(layer, Ranged):
                    yield "/".join([name, *map(str, path)]), layer


def pieces_of(model: Model) -> list[Piece]:
    return [piece for piece in model.pieces if CENTRES not in piece.names]


def traced(
    model: Model, layers: dict[str, Any], images: jax.ShapeDtypeStruct
) -> list[Value]:
    """Trace the model in evaluation mode; return its arrays in order of computation."""
    for name, layer in layers.items():
        kind = NORM if isinstance(layer, BatchNorm) else LAYER_INPUT
        layer.input_range = functools.partial(_at, kind, name)
        layer.output_range = functools.partial(_at, LAYER_OUTPUT, name)

    def evaluate(x: Any) -> Any:
        for index, piece in enumerate(pieces_of(model)):
            x = piece.apply(*(getattr(model, name) for name in piece.names), x, None)
            arrays, tree = jax.tree.flatten(x)
            x = tree.unflatten(
                _at(PIECE, f"{index}/{number}", array)
                for number, array in enumerate(arrays)
            )
        return x

    model.eval()
    traced = jax.make_jaxpr(evaluate)(images)
    model.train()
    for layer in layers.values():
        del layer.input_range, layer.output_range
    values: list[Value] = []
    given = [Value("", of_images=True)]
    consts = [Value("", of_weights=True) for _ in traced.consts]
    _read(traced.jaxpr, [*consts, *given], "", values)
    return values


def _at(kind: str, name: str, x: Any) -> Any:
    """Mark an array as an insertion point in the trace."""
    return checkpoint_name(x, f"{kind}:{name}")


def _read(jaxpr: Any, given: Sequence[Value], where: str, into: list[Value]) -> Any:
    """Append the values of a jaxpr and its called jaxprs to `into`; return its outputs.

    Args:
      jaxpr: Jaxpr without constants.
      given: Constants and inputs of the jaxpr.
      where: Name scope of the caller.
      into: List to append the values to.
    """
    known = dict(zip([*jaxpr.constvars, *jaxpr.invars], given, strict=True))

    def value_of(atom: Any) -> Value:
        return known[atom] if isinstance(atom, core.Var) else Value("")

    for eqn in jaxpr.eqns:
        inputs = tuple(map(value_of, eqn.invars))
        scope = "/".join(filter(None, (where, scopes.scope_of(eqn))))
        inner = next((eqn.params[name] for name in CALLS if name in eqn.params), None)
        if inner is not None and len(getattr(inner, "eqns", ())):
            consts = [Value("", of_weights=True) for _ in getattr(inner, "consts", ())]
            inner = getattr(inner, "jaxpr", inner)
            outputs = _read(inner, (*consts, *inputs), scope, into)
        else:
            outputs = [_value(eqn, inputs, scope, into) for _ in eqn.outvars]
        known.update(zip(eqn.outvars, outputs, strict=True))
    return [value_of(atom) for atom in jaxpr.outvars]


def _value(eqn: Any, inputs: tuple[Value, ...], where: str, into: list[Value]) -> Value:
    name, place = eqn.primitive.name, None
    if name == "name":
        kind, _, at = eqn.params["name"].partition(":")
        place = (kind, at) if kind in (LAYER_INPUT, LAYER_OUTPUT, PIECE, NORM) else None
    value = Value(
        op=name,
        inputs=inputs,
        of_images=any(x.of_images for x in inputs),
        of_weights=any(x.of_weights for x in inputs),
        place=place,
        where=where,
    )
    for x in {id(x): x for x in inputs}.values():
        x.users.append(value)
    into.append(value)
    return value


def places_of(values: Sequence[Value]) -> set[tuple[str, str]]:
    """Select the insertion points at which activations are quantized."""
    places: set[tuple[str, str]] = set()
    rounded: set[int] = set()
    ancestors = _ancestors_of_layer_inputs(values)
    for value in values:
        if value.place is not None and value.of_images:
            (x,) = value.inputs
            is_used = id(value) in ancestors or value.place[0] == LAYER_OUTPUT
            if (
                id(x) not in rounded
                and is_used
                and _needs_quantization(value, ancestors)
            ):
                places.add(value.place)
                rounded.add(id(value))
        passes = value.op in KEEPING or value.place is not None
        if passes and value.data and all(id(x) in rounded for x in value.data):
            rounded.add(id(value))
    return places


def _needs_quantization(value: Value, ancestors: set[int]) -> bool:
    """Whether an unquantized value needs quantization at its insertion point.

    Args:
      value: Value at an insertion point.
      ancestors: IDs of the values that layer inputs depend on.
    """
    assert value.place is not None
    kind, _ = value.place
    if kind != LAYER_OUTPUT:
        return kind != NORM
    found = only_place(value, CASTS)
    if found is not None and found.place is not None and found.place[0] == NORM:
        return False
    found = only_place(value, FUSED)
    if found is None or found.place is None or found.place[0] == NORM:
        return True
    return found.place[0] == PIECE and id(found) not in ancestors


def only_place(value: Value, through: Sequence[str]) -> Value | None:
    """Return the insertion point at the end of a chain of single users, or None.

    Args:
      value: Value to start from.
      through: Primitives that may lie between the value and the insertion point.
    """
    while len(value.users) == 1:
        (value,) = value.users
        if value.place is not None:
            return value
        if value.op not in through or len(value.data) != 1:
            return None
    return None


def _ancestors_of_layer_inputs(values: Sequence[Value]) -> set[int]:
    """Return the IDs of all layer inputs, and of all values that they depend on."""
    found: set[int] = set()
    for value in reversed(values):
        is_layer_input = value.place is not None and value.place[0] == LAYER_INPUT
        if is_layer_input or any(id(user) in found for user in value.users):
            found.add(id(value))
    return found
