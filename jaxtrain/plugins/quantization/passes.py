"""Passes of models over images, and their layers and arrays by name."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx

from jaxtrain.inference.model import TrainedModel
from jaxtrain.parallel import data_sharding
from jaxtrain.trees import by_path

# Images that are computed at once.
BATCH = 64


def of_batches(
    models: Sequence[TrainedModel], images: np.ndarray, function: Callable[..., Any]
) -> list[Any]:
    """Return what `function(images, *weights)` makes of each whole batch of images.

    Too few images for one are repeated.

    Args:
      models: Models whose weights it takes, which see images alike.
      images: Images of all batches, uint8 (n, H, W, C).
      function: Function of normalised images, to be compiled.
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
    """Return a tree with other values, by their paths."""
    return jax.tree.structure(tree).unflatten(values[path] for path in by_path(tree))
