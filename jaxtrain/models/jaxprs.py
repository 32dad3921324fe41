"""Equations of jaxprs: nested calls, identity primitives, and evaluation."""

from collections.abc import Sequence
from typing import Any

from jax.extend import core

# Primitives that call an inner jaxpr, which `called` returns.
CALLS = (
    "jit",
    "closed_call",
    "custom_jvp_call",
    "custom_vjp_call",
    "remat",
    "remat2",
    "checkpoint",
)
# Primitives that return their input unchanged.
IDENTITIES = ("copy", "stop_gradient", "sharding_constraint", "name")
# Primitive that prevents XLA from fusing operations.
BARRIER = "optimization_barrier"


def called(eqn: Any) -> tuple[Any, Any]:
    """Return the jaxpr that an equation calls (see `CALLS`), and its constants."""
    inner = eqn.params["jaxpr" if "jaxpr" in eqn.params else "call_jaxpr"]
    if hasattr(inner, "consts"):
        return inner.jaxpr, inner.consts
    return inner, []


def apply(jaxpr: Any, eqn: Any, inputs: Sequence[Any]) -> list[Any]:
    """Evaluate an equation, in the named scopes recorded in the jaxpr.

    Args:
      jaxpr: Jaxpr that contains the equation.
      eqn: Equation to evaluate.
      inputs: Arrays for `eqn.invars`; arrays for literals are ignored.
    """
    arrays = {
        atom: x
        for atom, x in zip(eqn.invars, inputs, strict=True)
        if isinstance(atom, core.Var)
    }
    alone = jaxpr.replace(
        constvars=(),
        invars=list(arrays),
        outvars=eqn.outvars,
        eqns=[eqn],
        effects=eqn.effects,
    )
    return core.jaxpr_as_fun(core.ClosedJaxpr(alone, ()))(*arrays.values())
