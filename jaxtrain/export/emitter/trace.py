"""Read the jaxpr of a function into a graph."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from jaxtrain.export.emitter import parts, primitives, windows
from jaxtrain.export.emitter.graph import Node, constant, unknown

# Primitive -> `(eqn, *inputs) -> output`.
Rule = Callable[..., Node]
RULES: dict[str, Rule] = {**primitives.RULES, **parts.RULES, **windows.RULES}

# Those that call a jaxpr, which takes its place, by the parameter that holds it.
CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "remat": "jaxpr",
    "checkpoint": "jaxpr",
    "remat2": "jaxpr",
}
# Floats: what JAX would compile, each on its own. `(params, *arrays) -> array`.
IN_NUMPY: dict[str, Callable[..., np.ndarray]] = {
    "add": lambda _, x, y: x + y,
    "div": lambda _, x, y: x / y,
    "exp": lambda _, x: np.exp(x),
    "max": lambda _, x, y: np.maximum(x, y),
    "mul": lambda _, x, y: x * y,
    "neg": lambda _, x: -x,
    "reduce_sum": lambda params, x: x.sum(tuple(params["axes"])),
    "rsqrt": lambda _, x: 1 / np.sqrt(x),
    "sqrt": lambda _, x: np.sqrt(x),
    "square": lambda _, x: x * x,
    "sub": lambda _, x, y: x - y,
}
# Those that say something to the compiler, and change no number.
IDENTITIES = ("copy", "copy_p", "stop_gradient", "sharding_constraint", "name")


def trace(
    function: Callable[[jax.Array], jax.Array],
    image_shape: tuple[int, int, int],
    dtype: Any,
    batch: int | None,
) -> tuple[Node, Node]:
    """Return the input and the output of the graph of a function of images.

    Args:
      function: (batch, rows, columns, channels) -> (batch, outputs).
      image_shape: rows, columns and channels.
      dtype: of the images.
      batch: images at a time; None: any number, by the name `batch`.

    Raises:
      UserError: the function uses what has no rule.
    """
    size = export.symbolic_shape("batch")[0] if batch is None else batch
    given = jax.ShapeDtypeStruct((size, *image_shape), dtype)
    closed = jax.make_jaxpr(function)(given)
    images = Node("Input", (), given.shape, np.dtype(dtype))
    return images, _read(closed.jaxpr, closed.consts, [images])[0]


def _read(jaxpr: Any, consts: Any, inputs: list[Node]) -> list[Node]:
    """Return what a jaxpr makes of its inputs."""
    values: dict[Any, Node] = {}

    def value_of(atom: Any) -> Node:
        if hasattr(atom, "val"):  # a literal
            return constant(np.asarray(atom.val, atom.aval.dtype))
        return values[atom]

    consts = [c if isinstance(c, Node) else constant(np.asarray(c)) for c in consts]
    values.update(zip(jaxpr.constvars, consts, strict=True))
    values.update(zip(jaxpr.invars, inputs, strict=True))
    for eqn in jaxpr.eqns:
        outputs = _apply(eqn, [value_of(atom) for atom in eqn.invars])
        values.update(zip(eqn.outvars, outputs, strict=True))
    return [value_of(atom) for atom in jaxpr.outvars]


def _apply(eqn: Any, inputs: list[Node]) -> list[Node]:
    """Return the outputs of one equation."""
    name = eqn.primitive.name
    if name in CALLS:
        inner = eqn.params[CALLS[name]]
        if hasattr(inner, "consts"):
            return _read(inner.jaxpr, inner.consts, inputs)
        return _read(inner, [], inputs)
    if name in IDENTITIES:
        return inputs
    if name == "split":
        return parts.split(eqn, *inputs)
    if all(x.is_constant for x in inputs) and _is_computed(eqn):
        return _compute(eqn, inputs)
    if name not in RULES:
        raise unknown(f"the operation {name!r}")
    return [RULES[name](eqn, *inputs)]


def _is_computed(eqn: Any) -> bool:
    """Return whether an equation of constants is computed now."""
    shapes = [atom.aval.shape for atom in (*eqn.invars, *eqn.outvars)]
    return eqn.primitive.name not in primitives.KEEP_PRECISION and all(
        isinstance(size, int) for shape in shapes for size in shape
    )


def _compute(eqn: Any, inputs: list[Node]) -> list[Node]:
    """Compute an equation of constants: of batch norms, in double precision."""
    name, dtype = eqn.primitive.name, eqn.outvars[0].aval.dtype
    if name in IN_NUMPY and jnp.issubdtype(dtype, jnp.floating):
        wide = [x.array.astype(np.float64) for x in inputs]
        if name == "reduce_sum":  # dims of 1 may stand for more
            wide = [np.broadcast_to(wide[0], eqn.invars[0].aval.shape)]
        return [constant(IN_NUMPY[name](eqn.params, *wide), dtype)]
    arrays = [
        jnp.asarray(np.broadcast_to(x.array, atom.aval.shape), x.dtype)
        for x, atom in zip(inputs, eqn.invars, strict=True)
    ]
    results = eqn.primitive.bind(*arrays, **eqn.params)
    if not eqn.primitive.multiple_results:
        results = [results]
    return [constant(np.asarray(result)) for result in results]
