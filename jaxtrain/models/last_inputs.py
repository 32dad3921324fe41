"""Inputs of the linear layer that a plain Flax module calls last: its features."""

import contextlib
import functools
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from flax import linen, nnx

from jaxtrain.errors import UserError

# Inputs of the linear layers that were called, in turn; None: nobody asks.
_inputs: ContextVar[list[Any] | None] = ContextVar("inputs", default=None)


@contextlib.contextmanager
def recording(model: Any) -> Iterator[list[Any]]:
    """Collect the inputs of linear layers, if the features of a model are asked for.

    Raises:
      UserError: There were none.
    """
    inputs = list[Any]()
    token = _inputs.set(inputs if model.bare else None)
    try:
        yield inputs
    finally:
        _inputs.reset(token)
    if model.bare and not inputs:
        raise UserError(
            f"model {type(model).__name__} calls no nnx.Linear or nn.Dense, whose "
            "inputs would be the features"
        )


def _record(x: Any) -> None:
    inputs = _inputs.get()
    if inputs is not None:
        inputs.append(x)


@functools.cache
def recorded_class(kind: type[nnx.Linear]) -> type[nnx.Linear]:
    """Return the class of linear layers that record their inputs."""

    def call(self: Any, x: Any, *given: Any, **options: Any) -> Any:
        _record(x)
        return kind.__call__(self, x, *given, **options)

    metaclass: Any = type(kind)
    return metaclass(kind.__name__, (kind,), {"__call__": call})


def record_dense(call: Any, given: Any, options: Any, context: Any) -> Any:
    if isinstance(context.module, linen.Dense) and context.method_name == "__call__":
        _record(given[0])
    return call(*given, **options)
