"""Equations of jaxprs: those that call another one, or change no number; each alone."""

from collections.abc import Sequence
from typing import Any

from jax.extend import core

# Those that call a jaxpr, which takes their place.
CALLS = (
    "jit",
    "closed_call",
    "custom_jvp_call",
    "custom_vjp_call",
    "remat",
    "remat2",
    "checkpoint",
)
# Those that say something to the compiler, and change no number.
IDENTITIES = ("copy", "stop_gradient", "sharding_constraint", "name")
# What keeps the operators before it apart from those behind it.
BARRIER = "optimization_barrier"


def called(eqn: Any) -> tuple[Any, Any]:
    """Return the jaxpr that one of `CALLS` calls, and its constants."""
    inner = eqn.params["jaxpr" if "jaxpr" in eqn.params else "call_jaxpr"]
    if hasattr(inner, "consts"):
        return inner.jaxpr, inner.consts
    return inner, []


def apply(jaxpr: Any, eqn: Any, inputs: Sequence[Any]) -> list[Any]:
    """Apply an equation to arrays, in the scopes that it was traced in.

    Args:
      inputs: An array for each input; those of literals are not looked at.
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
