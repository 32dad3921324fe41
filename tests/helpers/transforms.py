"""Transforms of models, right ones and wrong ones."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jaxtrain.models.base import Model
from jaxtrain.models.layers import Conv


class Scaled(nnx.Module):
    """Clips what enters a convolution at the largest value of the last batch."""

    def __init__(self, promote: Any):
        self.promote = promote
        self.largest = nnx.BatchStat(jnp.ones(()))
        self.use_running_average = False

    def __call__(self, arrays: Any, *, dtype: Any) -> Any:
        x, kernel, bias = self.promote(arrays, dtype=dtype)
        if not self.use_running_average:
            self.largest[...] = jnp.max(jnp.abs(jax.lax.stop_gradient(x)))
        largest = self.largest[...].astype(x.dtype)
        return jnp.clip(x, -largest, largest), kernel, bias


def scaled(model: Model) -> Model:
    for _, layer in nnx.iter_modules(model):
        if isinstance(layer, Conv):
            quantiser: Any = Scaled(layer.promote_dtype)
            layer.promote_dtype = nnx.data(quantiser)
    return model


def nothing(model: Model) -> None:
    """Forget to return the model."""


def outside(model: Model) -> Model:
    model.factor = nnx.Param(jnp.ones(3))  # pyright: ignore[reportAttributeAccessIssue]
    return model


class Wrapped(nnx.Module):
    def __init__(self, layer: Any):
        self.layer = layer

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.layer(x)


def wrapped(model: Model) -> Model:
    """Change the paths of the first layer."""
    first = model.pieces[0].names[0]
    setattr(model, first, Wrapped(getattr(model, first)))
    return model


def same(key: jax.Array, image: jax.Array, fill: jax.Array) -> jax.Array:
    """Augment nothing."""
    return image
