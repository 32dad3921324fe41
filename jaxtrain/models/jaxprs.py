"""Equations of jaxprs: calls, no-ops, and evaluation of one equation."""

from collections.abc import Sequence
from typing import Any

from jax.extend import core

# Primitives that call a jaxpr, which replaces them.
CALLS = (
    "jit",
    "closed_call",
    "custom_jvp_call",
    "custom_vjp_call",
    "remat",
    "remat2",
    "checkpoint",
)
# Primitives that are identities with a hint for the compiler.
IDENTITIES = ("copy", "stop_gradient", "sharding_constraint", "name")
# Primitives that prevent fusion across them.
BARRIER = "optimization_barrier"


def called(eqn: Any) -> tuple[Any, Any]:
    """The called jaxpr of one of `CALLS`, and its constants."""
    inner = eqn.params["jaxpr" if "jaxpr" in eqn.params else "call_jaxpr"]
    if hasattr(inner, "consts"):
        return inner.jaxpr, inner.consts
    return inner, []


def apply(jaxpr: Any, eqn: Any, inputs: Sequence[Any]) -> list[Any]:
    """Evaluate an equation, in the scopes in which it was traced.

    Args:
      inputs: An array per input; values for literals are ignored.
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
