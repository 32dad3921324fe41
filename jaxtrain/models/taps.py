"""Outputs of the layers in a plain Flax module, and gradients with respect to them."""

import contextlib
import functools
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import jax
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from jaxtrain.models.jaxprs import CALLS, called

# Name of the attribute in which a layer stores its path.
PATH = "tapped_path"
# Name by which `checkpoint_name` marks the results of `read` in a jaxpr.
READ = "read_activations"


@jax.custom_vjp
def read(y: jax.Array, activations: jax.Array, grads: jax.Array) -> jax.Array:
    """Return `y`; expose `y` and its gradient as gradients of the other arguments.

    The gradient with respect to `activations` is `y`, and the gradient with respect to
    `grads` is the gradient with respect to `y`. Unlike side effects, gradients can
    leave nested traces, such as nnx.remat.

    Args:
      y: Activations of a layer.
      activations: Array with the shape of `y`; its value is ignored.
      grads: Array with the shape of `y`; its value is ignored.
    """
    del activations, grads
    return checkpoint_name(y, READ)


read.defvjp(lambda y, *_: (y, y), lambda y, grad: (grad, y, grad))


@dataclass
class Taps:
    """Recorder of layer calls with spatial outputs (B, H, W, C) of several pixels.

    Attributes:
      place: Index in `calls` of the call whose output is passed to `read`. None selects
        no call.
      arrays: Arguments `activations` and `grads` of `read`, each with the shape of the
        selected output.
      calls: Recorded calls in order: (path of the layer, shape and dtype of its
        output).
    """

    place: int | None = None
    arrays: tuple[jax.Array, jax.Array] | None = None
    calls: list[tuple[str, jax.ShapeDtypeStruct]] = field(default_factory=list)

    def record(self, path: str, y: Any) -> Any:
        """Record a layer call, and return the layer's output.

        The output of the selected call is passed through `read`.

        Args:
          path: Path of the layer.
          y: Output of the layer.
        """
        shape = getattr(y, "shape", ())
        if len(shape) != 4 or shape[1] * shape[2] == 1:
            return y
        self.calls.append((path, jax.ShapeDtypeStruct(shape, y.dtype)))
        if self.arrays is None or len(self.calls) - 1 != self.place:
            return y
        return read(y, *self.arrays)


def shapes_read(jaxpr: Any) -> list[tuple[int, ...]]:
    """Shapes of the results of `read` in a jaxpr, except in the bodies of loops."""
    shapes = []
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "name" and eqn.params["name"] == READ:
            shapes.append(eqn.invars[0].aval.shape)
        elif eqn.primitive.name in CALLS:
            shapes += shapes_read(called(eqn)[0])
    return shapes


_taps: ContextVar[Taps | None] = ContextVar("taps", default=None)


@contextlib.contextmanager
def tapping(model: nnx.Module, taps: Taps) -> Iterator[None]:
    """Record layer outputs in `taps` within the context; modify the model in place."""
    for path, layer in nnx.iter_modules(model):
        if path and callable(layer) and not isinstance(layer, nnx.bridge.ToNNX):
            setattr(layer, PATH, "/".join(map(str, path)))
            object.__setattr__(layer, "__class__", _tapped_class(type(layer)))
    token = _taps.set(taps)
    try:
        yield
    finally:
        _taps.reset(token)


def tap_linen(call: Any, given: Any, options: Any, context: Any) -> Any:
    """Record module outputs, as an interceptor for `linen.intercept_methods`."""
    y, taps, path = call(*given, **options), _taps.get(), context.module.path
    if taps is None or context.method_name != "__call__" or not path:
        return y
    return taps.record("/".join(path), y)


@functools.cache
def _tapped_class(kind: type[nnx.Module]) -> type[nnx.Module]:
    def call(self: Any, *given: Any, **options: Any) -> Any:
        y, taps = kind.__call__(self, *given, **options), _taps.get()
        return y if taps is None else taps.record(getattr(self, PATH), y)

    metaclass: Any = type(kind)
    return metaclass(kind.__name__, (kind,), {"__call__": call})
