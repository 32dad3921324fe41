"""Named scopes that attribute instructions of a compiled program to parts of a step.

`jax.named_scope` stores scopes in the `op_name` metadata of instructions, which
profilers show; the program is otherwise unchanged. JAX adds names of transformations,
as in `transpose(jvp(part:loss))/layer:conv1/dot`.
"""

import functools
import re
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar

import jax

LOSS, OPTIMIZER, PREPROCESS = "loss", "optimizer", "preprocess"
_SCOPE = re.compile(r"(layer|part|model):([^/()\s]+)")
# Replaces slashes in layer paths, because slashes separate scopes.
_SLASH = "."

P = ParamSpec("P")
T = TypeVar("T")


class Scope(NamedTuple):
    """Scope of an instruction: a layer, or another part of a training step.

    Attributes:
      name: Path of the layer, or name of the other part.
      is_layer: Whether the scope is a layer of the model.
      backward: Whether the instruction belongs to the backward pass, which includes
        rematerialization.
    """

    name: str
    is_layer: bool
    backward: bool


def layer(path: str) -> Any:
    """Return the named scope of the layer at `path`."""
    return jax.named_scope("layer:" + path.replace("/", _SLASH))


def part(name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorator: run a function in the scope of a step's part, such as the loss."""
    return _scoped(f"part:{name}")


def other_model(name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorator: run a function in the scope of another model, such as a teacher.

    All layers of the other model are a single part of the step, because the trained
    model may have layers of the same names.
    """
    return _scoped(f"model:{name}")


def _scoped(scope: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def scoped(*args: P.args, **options: P.kwargs) -> T:
            with jax.named_scope(scope):
                return function(*args, **options)

        return scoped

    return decorate


def scope_of(eqn: Any) -> str:
    """Return the scopes of a jaxpr equation, separated by slashes."""
    return str(eqn.source_info.name_stack)


def parse_scope(op_name: str) -> Scope | None:
    """Parse the innermost scope in an instruction's `op_name`; None without a scope.

    Layers of another model have the scope of that model.
    """
    scopes = _SCOPE.findall(op_name)
    if not scopes:
        return None
    others = [name for kind, name in scopes if kind == "model"]
    if others:
        return Scope(others[0], False, False)
    kind, name = scopes[-1]
    backward = "transpose(" in op_name or "rematted_computation" in op_name
    if kind == "layer":
        return Scope(name.replace(_SLASH, "/"), True, backward)
    return Scope(name, False, backward)
