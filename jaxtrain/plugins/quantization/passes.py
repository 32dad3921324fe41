"""Compiled functions that run on batches of images; layers and arrays by path."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx

from jaxtrain.inference.model import TrainedModel
from jaxtrain.parallel import data_sharding
from jaxtrain.trees import by_path

# Maximum number of images per batch.
BATCH = 64


def of_batches(
    models: Sequence[TrainedModel], images: np.ndarray, function: Callable[..., Any]
) -> list[Any]:
    """Compute `function(images, *weights)` for each full batch of images.

    Images after the last full batch are dropped. If the images do not fill a batch,
    they are repeated.

    Args:
      models: Models with the same preprocessing.
      images: Images to divide into batches, uint8 (n, H, W, C).
      function: Traceable function of normalized images (B, H, W, C) and of the weights
        (params, model_state) of each model.
    """
    model = models[0]

    def run(pixels: jax.Array, *weights: Any) -> Any:
        with jax.default_matmul_precision(model.policy.products):
            return function(model.prepare(pixels[0]), *weights)

    program = jax.jit(run, out_shardings=data_sharding.replicated(model.mesh))
    size = model.share(min(BATCH, len(images)))
    images = np.resize(images, (max(size, len(images)), *images.shape[1:]))
    found = []
    for start in range(0, len(images) - size + 1, size):
        pixels = images[None, start : start + size]
        batch = data_sharding.put_batch(model.mesh, pixels, size)
        found.append(jax.device_get(program(batch, *(m.placed for m in models))))
    return found


def named_layers(network: nnx.Module) -> Iterator[tuple[str, nnx.Module]]:
    for path, layer in nnx.iter_modules(network):
        yield "/".join(map(str, path)), layer


def with_values(tree: Any, values: Mapping[str, Any]) -> Any:
    """Replace the leaves of a tree by `values[path]`."""
    return jax.tree.structure(tree).unflatten(values[path] for path in by_path(tree))
