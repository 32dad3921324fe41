"""Names that a compiled program carries of the parts of a step.

`jax.named_scope` puts them into the metadata of instructions (`op_name`), where
profilers look for them: the program itself is the same without. JAX adds what is made
of a scope in differentiation, such as `transpose(jvp(part:loss))/layer:conv1/dot`.
"""

import functools
import re
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar

import jax

LOSS, OPTIMIZER, PREPROCESS = "loss", "optimizer", "preprocess"
_SCOPE = re.compile(r"(layer|part|model):([^/()\s]+)")
# A path of layers has slashes, which part the scopes of a name.
_SLASH = "."

P = ParamSpec("P")
T = TypeVar("T")


class Place(NamedTuple):
    """Place of an instruction in the model or the step.

    Attributes:
      name: Path of a layer, or name of another part of a step.
      is_layer: Whether it is a layer of the model.
      backward: Whether it is of a backward pass, or computes for one again.
    """

    name: str
    is_layer: bool
    backward: bool


def layer(path: str) -> Any:
    """Return the scope of a layer of the model, by its path."""
    return jax.named_scope("layer:" + path.replace("/", _SLASH))


def part(name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator: what a function computes is of a part of a step."""
    return _scoped(f"part:{name}")


def other_model(name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator: what a function computes is of another model.

    Its layers may have the names of those of the model: all are one part of a step.
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
    """Return the scopes that an equation of a jaxpr was traced in, parted by slashes.

    JAX has them in the `SourceInfo` of an equation alone.
    """
    return str(eqn.source_info.name_stack)


def place_of(op_name: str) -> Place | None:
    """Return the innermost scope in the metadata of an instruction; None without.

    What another model computes is of one part, whatever its layers.
    """
    scopes = _SCOPE.findall(op_name)
    if not scopes:
        return None
    others = [name for kind, name in scopes if kind == "model"]
    if others:
        return Place(others[0], False, False)
    kind, name = scopes[-1]
    backward = "transpose(" in op_name or "rematted_computation" in op_name
    if kind == "layer":
        return Place(name.replace(_SLASH, "/"), True, backward)
    return Place(name, False, backward)
