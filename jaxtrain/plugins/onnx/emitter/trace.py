"""Conversion of a jaxpr to a graph."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from jaxtrain.errors import UserError
from jaxtrain.models.jaxprs import BARRIER, CALLS, IDENTITIES, called
from jaxtrain.plugins.onnx.emitter import arrays, integers, primitives, windows
from jaxtrain.plugins.onnx.emitter.graph import (
    Node,
    constant,
    elementwise,
    full,
    unknown,
)

# Primitive -> rule, which takes (eqn, *inputs) and returns the output or a list of
# outputs. The inputs are fully broadcast.
RULES: dict[str, Callable[..., Any]] = {**arrays.RULES, **windows.RULES}
# Float primitives to evaluate in NumPy: JAX would compile each one.
IN_NUMPY: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add,
    "div": np.divide,
    "exp": np.exp,
    "max": np.maximum,
    "mul": np.multiply,
    "neg": np.negative,
    "reduce_sum": np.sum,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sqrt": np.sqrt,
    "square": np.square,
    "sub": np.subtract,
}
# Primitives that the rules evaluate for constants, because JAX would round the values
# to their dtype.
KEEP_PRECISION = ("convert_element_type", "reshape", "transpose", "broadcast_in_dim")


def trace(
    function: Callable[[jax.Array], jax.Array],
    image_shape: tuple[int, int, int],
    dtype: Any,
    batch: int | None,
) -> tuple[Node, Node]:
    """Trace a function of images to a graph; return the graph's input and output.

    Raises:
      UserError: A primitive is unsupported, or the function needs a fixed batch size.
    """
    size = export.symbolic_shape("batch")[0] if batch is None else batch
    given = jax.ShapeDtypeStruct((size, *image_shape), dtype)
    try:
        closed = jax.make_jaxpr(function)(given)
    except TypeError as error:
        if batch is not None or "_DimExpr" not in str(error):
            raise
        raise UserError(
            "--batch dynamic: the model, or the postprocessing of its task, needs a "
            f"fixed batch size ({error}): reshape with x.shape[0] instead of len(x), "
            "or give a fixed size, such as --batch 16"
        ) from error
    images = Node("Input", (), given.shape, np.dtype(dtype))
    return images, _read(closed.jaxpr, closed.consts, [images])[0]


def _read(jaxpr: Any, consts: Any, inputs: list[Node]) -> list[Node]:
    """Convert a jaxpr to nodes; return the nodes of its outputs."""
    values: dict[Any, Node] = {}

    def value_of(atom: Any) -> Node:
        if hasattr(atom, "val"):  # a literal
            return constant(np.asarray(atom.val, atom.aval.dtype))
        return values[atom]

    values.update(zip(jaxpr.constvars, map(constant, consts), strict=True))
    values.update(zip(jaxpr.invars, inputs, strict=True))
    for eqn in jaxpr.eqns:
        outputs = _apply(eqn, [value_of(atom) for atom in eqn.invars])
        values.update(zip(eqn.outvars, outputs, strict=True))
    return [value_of(atom) for atom in jaxpr.outvars]


def _apply(eqn: Any, inputs: list[Node]) -> list[Node]:
    """Convert an equation to nodes; return the nodes of its outputs."""
    name = eqn.primitive.name
    if name == "jit" and eqn.params["name"] in integers.RULES:
        return [integers.RULES[eqn.params["name"]](*inputs)]
    if name in CALLS:
        return _read(*called(eqn), inputs)
    if name in IDENTITIES:
        return inputs
    if name == BARRIER:
        return [elementwise("Barrier", x) for x in inputs]
    if _is_computed(eqn, inputs):
        return _compute(eqn, inputs)
    if name in primitives.RULES:
        return [primitives.RULES[name](eqn, *inputs)]
    if name not in RULES:
        raise unknown(f"the operation {name!r}")
    shapes = (atom.aval.shape for atom in eqn.invars)
    found = RULES[name](eqn, *map(full, inputs, shapes))
    return found if isinstance(found, list) else [found]


def _is_computed(eqn: Any, inputs: list[Node]) -> bool:
    """Whether all inputs of an equation are constants, and all shapes are static."""
    shapes = [atom.aval.shape for atom in (*eqn.invars, *eqn.outvars)]
    return (
        all(x.is_constant for x in inputs)
        and eqn.primitive.name not in KEEP_PRECISION
        and all(isinstance(size, int) for shape in shapes for size in shape)
    )


def _compute(eqn: Any, inputs: list[Node]) -> list[Node]:
    """Evaluate an equation with constant inputs; return its outputs as constants.

    Float primitives of `IN_NUMPY` are evaluated in float64.
    """
    name, dtype = eqn.primitive.name, eqn.outvars[0].aval.dtype
    if name in IN_NUMPY and jnp.issubdtype(dtype, jnp.floating):
        wide, axes = [x.value.astype(np.float64) for x in inputs], {}
        if name == "reduce_sum":  # A sum needs the full, broadcast shape.
            wide = [np.broadcast_to(wide[0], eqn.invars[0].aval.shape)]
            axes = {"axis": tuple(eqn.params["axes"])}
        return [constant(IN_NUMPY[name](*wide, **axes), dtype)]
    given = [
        jnp.asarray(np.broadcast_to(x.value, atom.aval.shape), x.dtype)
        for x, atom in zip(inputs, eqn.invars, strict=True)
    ]
    results = eqn.primitive.bind(*given, **eqn.params)
    if not eqn.primitive.multiple_results:
        results = [results]
    return [constant(np.asarray(result)) for result in results]
