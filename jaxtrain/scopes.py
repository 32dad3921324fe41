"""Named scopes that attribute instructions of a compiled program to parts of a step.

`jax.named_scope` stores scopes in the metadata of instructions (`op_name`), where
profilers find them; the program is otherwise unchanged. JAX adds the transforms of
differentiation, such as `transpose(jvp(part:loss))/layer:conv1/dot`.
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
    """Layer or part of a step that an instruction belongs to.

    Attributes:
      name: Path of a layer, or name of another part of a step.
      is_layer: Whether it is a layer of the model.
      backward: Whether it belongs to the backward pass, including rematerialization.
    """

    name: str
    is_layer: bool
    backward: bool


def layer(path: str) -> Any:
    """Return the named scope of a layer, by its path."""
    return jax.named_scope("layer:" + path.replace("/", _SLASH))


def part(name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator that runs a function in the scope of a part of a step."""
    return _scoped(f"part:{name}")


def other_model(name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator that runs a function in the scope of another model.

    All layers of the other model count as a single part of the step, because their
    names may equal names of layers in the trained model.
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
    """Return the scopes, separated by slashes, in which a jaxpr equation was traced.

    JAX stores the scopes only in the `SourceInfo` of an equation.
    """
    return str(eqn.source_info.name_stack)


def parse_scope(op_name: str) -> Scope | None:
    """Parse the innermost scope from an instruction's metadata, or return None.

    Layers of another model are attributed to that model.
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
