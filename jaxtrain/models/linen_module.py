"""Initialization and forward pass of Linen modules that are converted to NNX."""

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen, nnx
from flax.core import DenyList

from jaxtrain.models.call_mode import (
    as_evaluated,
    evaluation_values,
    keywords_of,
    mode,
)
from jaxtrain.models.last_inputs import record_dense
from jaxtrain.models.layers import Layers
from jaxtrain.models.taps import tap_linen

# Instance attributes set by `FlaxModel`, not by `nnx.bridge.ToNNX`.
MODEL_ATTRIBUTES = frozenset(
    {"pieces", "deterministic", "bare", "example_shape", "frozen_layers"}
)
# Collections that the forward pass may update in training.
MUTABLE = DenyList(("params", "intermediates"))


def from_linen(
    module: linen.Module, image_shape: tuple[int, int, int], layers: Layers
) -> Any:
    """Convert a Linen module to NNX, and initialize it with a batch of one image."""
    images = jnp.zeros((1, *image_shape), layers.policy.compute_dtype)
    switches = mode(keywords_of(type(module)), training=False)
    made: Any = nnx.bridge.ToNNX(module)
    rngs = nnx.Rngs(params=layers.rngs.params(), dropout=layers.rngs.params())
    return nnx.bridge.lazy_init(made, images, rngs=rngs, **switches)


def apply_linen(
    model: Any,
    x: Any,
    rngs: nnx.Rngs | None,
    *,
    training: bool,
    frozen: frozenset[str],
) -> Any:
    """Apply a converted Linen module; in training, update its collections in place.

    Args:
      model: Module from `from_linen`, converted to a `FlaxModel`.
      frozen: Paths of the frozen layers.
    """
    linen_module = model.to_nnx__module
    bare: Any = nnx.bridge.ToNNX(linen_module)
    # Copy only collections, as ToNNX treats all attributes as variables.
    variables = {n: x for n, x in vars(model).items() if _is_collection(n)}
    vars(bare).update(variables)
    switches = mode(keywords_of(type(linen_module)), training=training)
    mutable = MUTABLE if training else False
    with (
        # Annotated parameters are sharded by `Layout`, not by Flax.
        nnx.use_eager_sharding(False),
        _evaluating(frozen),
        linen.intercept_methods(record_dense),
        linen.intercept_methods(tap_linen),
    ):
        y = bare(x, rngs=rngs, mutable=mutable, **switches)
    for name, old in variables.items():
        if vars(bare)[name] is not old:
            new = nnx.state(vars(bare)[name])
            dtypes = jax.tree.map(lambda x: x.dtype, nnx.state(old))
            nnx.update(old, jax.tree.map(lambda x, d: x.astype(d), new, dtypes))
    return y


def _is_collection(name: str) -> bool:
    """Whether an attribute of a converted module is a variable collection."""
    return name not in MODEL_ATTRIBUTES and not name.startswith(
        ("to_nnx__", "_pytree__")
    )


@contextlib.contextmanager
def _evaluating(frozen: frozenset[str]) -> Iterator[None]:
    """Run the submodules at `frozen` paths in evaluation mode within the context."""

    def intercept(call: Any, given: Any, options: Any, context: Any) -> Any:
        module, path = context.module, context.module.path
        if not any("/".join(path[:n]) in frozen for n in range(1, len(path) + 1)):
            return call(*given, **options)
        method = getattr(type(module), context.method_name)
        parameters = [*inspect.signature(method).parameters][1:]
        values = evaluation_values([*parameters, *options])
        fields = {
            name: value
            for name, value in evaluation_values(module.__dataclass_fields__).items()
            if getattr(module, name) is not None
        }
        # Flax layers accept the mode as attribute or as argument, but not as both.
        values = {n: x for n, x in values.items() if n not in fields or n in options}
        given, options = as_evaluated(parameters, values, given, options)
        before = {name: getattr(module, name) for name in fields}
        for name, value in fields.items():
            object.__setattr__(module, name, value)
        try:
            return call(*given, **options)
        finally:
            for name, value in before.items():
                object.__setattr__(module, name, value)

    if not frozen:
        yield
        return
    with linen.intercept_methods(intercept):
        yield
