"""Activations of the layers of a plain Flax module, read and perturbed."""

import contextlib
import functools
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import jax
from flax import nnx

# Attribute of a layer that has its path.
PATH = "tapped_path"


@dataclass
class Taps:
    """Outputs of layers that are images of features, in the order of the calls.

    Attributes:
      place: Place in that order of the activations to read; None reads none.
      perturbation: Array that is added to them; None: 0.
      found: Path of the layer and shape (B, rows, columns, channels), call by call.
      activations: Activations that were read, before the perturbation. Flax raises
        `flax.errors.TraceContextError` if they are of another trace than the taps,
        such as that of nnx.remat.
    """

    place: int | None = None
    perturbation: jax.Array | None = None
    found: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    activations: nnx.Variable[Any] = field(default_factory=lambda: nnx.Variable(None))

    def see(self, path: str, y: Any) -> Any:
        """Return the output of a layer, perturbed if it is the one to read."""
        shape = getattr(y, "shape", ())
        if len(shape) != 4 or shape[1] * shape[2] == 1:
            return y
        self.found.append((path, shape))
        if len(self.found) - 1 == self.place:
            self.activations.set_value(y)
            y = y if self.perturbation is None else y + self.perturbation
        return y


_taps: ContextVar[Taps | None] = ContextVar("taps", default=None)


@contextlib.contextmanager
def tapping(model: nnx.Module, taps: Taps) -> Iterator[None]:
    """Have the layers of a model, which changes, show their outputs to `taps`."""
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
    """Show the outputs of Linen modules, as an interceptor of Linen."""
    y, taps, path = call(*given, **options), _taps.get(), context.module.path
    if taps is None or context.method_name != "__call__" or not path:
        return y
    return taps.see("/".join(path), y)


@functools.cache
def _tapped_class(kind: type[nnx.Module]) -> type[nnx.Module]:
    def call(self: Any, *given: Any, **options: Any) -> Any:
        y, taps = kind.__call__(self, *given, **options), _taps.get()
        return y if taps is None else taps.see(getattr(self, PATH), y)

    metaclass: Any = type(kind)
    return metaclass(kind.__name__, (kind,), {"__call__": call})
