"""Equations of jaxprs that call another one, or change no number."""

from typing import Any

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
