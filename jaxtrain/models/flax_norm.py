"""Flax's batch norm, with an error if it normalizes a single value per channel."""

from typing import Any

import jax
from flax import nnx

from jaxtrain.models.batch_norm import one_value_error


class FlaxBatchNorm(nnx.BatchNorm):
    """`nnx.BatchNorm` with the path of the layer in the model, for messages."""

    layer_path: str = ""

    def __call__(
        self, x: jax.Array, use_running_average: bool | None = None, **options: Any
    ) -> jax.Array:
        """Normalize as `nnx.BatchNorm` does.

        Raises:
          UserError: Batch statistics would be computed from a single value per channel.
        """
        evaluated = self.use_running_average
        if use_running_average is not None:
            evaluated = use_running_average
        alone = x.size == self.num_features and self.axis_name is None
        if alone and not evaluated:
            raise one_value_error(self.layer_path, x.shape, groups=1)
        return super().__call__(x, use_running_average, **options)


def watch_norms(model: nnx.Module) -> None:
    """Convert each `nnx.BatchNorm` in a model to `FlaxBatchNorm`."""
    for path, layer in nnx.iter_modules(model):
        if type(layer) is nnx.BatchNorm:
            object.__setattr__(layer, "__class__", FlaxBatchNorm)
            changed: Any = layer
            changed.layer_path = "/".join(map(str, path))
