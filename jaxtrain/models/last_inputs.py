"""Recording of linear-layer calls in a plain Flax module, to find its head."""

import contextlib
import functools
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen, nnx

from jaxtrain.errors import UserError

# Name of the attribute in which a layer stores its path.
PATH = "recorded_path"


class LinearCall(NamedTuple):
    """Call of an nnx.Linear or nn.Dense layer.

    Attributes:
      path: Path of the layer, such as `head/linear`.
      inputs: Inputs of the layer, (batch, ..., features).
      shape: Shape of the layer's outputs.
    """

    path: str
    inputs: Any
    shape: tuple[int, ...]


# Calls so far, in order; None if not recording.
_calls: ContextVar[list[LinearCall] | None] = ContextVar("calls", default=None)


@contextlib.contextmanager
def recording() -> Iterator[list[LinearCall]]:
    """Record calls of linear layers in the yielded list, within the context."""
    calls = list[LinearCall]()
    token = _calls.set(calls)
    try:
        yield calls
    finally:
        _calls.reset(token)


def record_linears(model: nnx.Module) -> bool:
    """Make all `nnx.Linear` layers record their calls; return whether there are any."""
    layers = [(p, x) for p, x in nnx.iter_modules(model) if isinstance(x, nnx.Linear)]
    for path, layer in layers:
        setattr(layer, PATH, "/".join(map(str, path)))
        object.__setattr__(layer, "__class__", _recorded_class(type(layer)))
    return bool(layers)


def _record(path: str, inputs: Any, outputs: Any) -> None:
    calls = _calls.get()
    if calls is not None:
        calls.append(LinearCall(path, inputs, outputs.shape))


@functools.cache
def _recorded_class(kind: type[nnx.Linear]) -> type[nnx.Linear]:
    def call(self: Any, x: Any, *given: Any, **options: Any) -> Any:
        y = kind.__call__(self, x, *given, **options)
        _record(getattr(self, PATH), x, y)
        return y

    metaclass: Any = type(kind)
    return metaclass(kind.__name__, (kind,), {"__call__": call})


def record_dense(call: Any, given: Any, options: Any, context: Any) -> Any:
    """Record calls of nn.Dense, as an interceptor for `linen.intercept_methods`."""
    y = call(*given, **options)
    if isinstance(context.module, linen.Dense) and context.method_name == "__call__":
        x = given[0] if given else options["inputs"]
        _record("/".join(context.module.path), x, y)
    return y


def find_head(model: Any) -> str:
    """Return the path of the head, the linear layer that is called last.

    Args:
      model: FlaxModel, possibly abstract.

    Raises:
      UserError: No linear layer is called, or the outputs of the last call do not have
        the shape of the model's outputs.
    """
    graphdef, state = nnx.split(model)
    calls = list[LinearCall]()

    def forward(state: Any, images: jax.Array) -> Any:
        copy = nnx.merge(graphdef, state)
        copy.eval()
        record_linears(copy)
        with recording() as found:
            y = copy(images)
        calls.extend(found)
        return y

    images = jax.ShapeDtypeStruct((2, *model.example_shape), jnp.float32)
    outputs = jax.eval_shape(forward, state, images)
    if not calls or getattr(outputs, "shape", None) != calls[-1].shape:
        reason = "the model calls no nnx.Linear or nn.Dense"
        if calls:
            reason = (
                f"the output shape of the last linear layer, {calls[-1].path}, differs "
                "from the output shape of the model"
            )
        raise UserError(
            f"model {type(model).__name__}: cannot determine the head, as {reason}; "
            "instead of `backbone`, give patterns of layer paths"
        )
    return calls[-1].path
