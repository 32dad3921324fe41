"""Layers that run in a `jax.named_scope` of their path, shown in profiles and HLO."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from flax import nnx

from jaxtrain import scopes

Call = TypeVar("Call", bound=Callable[..., Any])


class NamedLayer(nnx.Module):
    """A layer with an attribute for its path in a model.

    Attributes:
      layer_path: Path in the model, such as `stage1_block1/conv1`. None for layers that
        are not part of a model.
    """

    layer_path: str | None = None


def name_layers(name: str, layer: nnx.Module) -> None:
    """Set `layer_path` of the layer `name` of a model, and of its sublayers."""
    for path, inner in nnx.iter_modules(layer):
        if isinstance(inner, NamedLayer):
            inner.layer_path = "/".join([name, *map(str, path)])


def in_own_scope(call: Call) -> Call:
    """Decorate a method of a `NamedLayer` to run in the named scope of its path."""

    @functools.wraps(call)
    def named(self: Any, *args: Any, **options: Any) -> Any:
        if self.layer_path is None:
            return call(self, *args, **options)
        with scopes.layer(self.layer_path):
            return call(self, *args, **options)

    return named  # type: ignore[return-value]
