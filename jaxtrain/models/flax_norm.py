"""Flax's own batch norm in a model, refused where it has one value per channel."""

from typing import Any

import jax
from flax import nnx

from jaxtrain.models.batch_norm import one_value_error


class FlaxBatchNorm(nnx.BatchNorm):
    """Batch norm of Flax that knows its place in the model."""

    layer_path: str = ""

    def __call__(
        self, x: jax.Array, use_running_average: bool | None = None, **options: Any
    ) -> jax.Array:
        """Normalise as Flax does.

        Raises:
          UserError: each channel has one value to take the statistics of.
        """
        evaluated = self.use_running_average
        if use_running_average is not None:
            evaluated = use_running_average
        alone = x.size == self.num_features and self.axis_name is None
        if alone and not evaluated:
            raise one_value_error(self.layer_path, x.shape, groups=1)
        return super().__call__(x, use_running_average, **options)


def watch_norms(model: nnx.Module) -> None:
    """Make each batch norm of Flax in a model a `FlaxBatchNorm`."""
    for path, layer in nnx.iter_modules(model):
        if type(layer) is nnx.BatchNorm:
            object.__setattr__(layer, "__class__", FlaxBatchNorm)
            changed: Any = layer
            changed.layer_path = "/".join(map(str, path))
