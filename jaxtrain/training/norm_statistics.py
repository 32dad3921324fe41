"""Batch-norm statistics computed anew, of training images, for averaged weights.

Those of the weights that were averaged belong to other activations (Izmailov et al.
2018, arXiv:1803.05407).
"""

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxtrain.data.order import epoch_order
from jaxtrain.data.window_grid import WindowGrid
from jaxtrain.training.forward import apply_model
from jaxtrain.training.frozen import NOTHING, Frozen
from jaxtrain.trees import by_path, path_name

# Training images, or windows of them, that they are computed from at most.
NUM_IMAGES = 10_000
# Of a batch: which of the windows of its image each row is, int (batch,).
WINDOW = "window"


def statistics_of_batch(
    graphdef: Any,
    params: Any,
    model_state: Any,
    images: Any,
    keeps: Mapping[str, float],
    frozen: Frozen = NOTHING,
    cpus: Mesh | None = None,
) -> dict[str, jax.Array]:
    """Return the statistics of one batch, by their paths.

    Args:
      graphdef: Graph of the model.
      params: Parameters of the model.
      model_state: Other state of the model.
      images: Prepared images (B, H, W, C).
      keeps: What a step keeps of the running statistics that are wanted, by their
        paths.
      frozen: Layers that compute as in an evaluation.
      cpus: Mesh of CPU devices, as `apply_model` takes it.
    """

    def from_zero(path: Any, x: jax.Array) -> jax.Array:
        return jnp.zeros_like(x) if path_name(path) in keeps else x

    # From 0 on a step leaves so much of the statistics of its batch.
    zeros = jax.tree_util.tree_map_with_path(from_zero, model_state)
    key = jax.random.key(0)
    _, after = apply_model(
        graphdef, params, zeros, images, key, frozen=frozen, cpus=cpus
    )
    found = by_path(after)
    return {path: found[path] / (1 - kept) for path, kept in keeps.items()}


def chosen_images(num_examples: int, batch_size: int, most: int) -> np.ndarray:
    """Return the numbers of the images of whole batches, int64 (batches, batch_size).

    Args:
      num_examples: Number of training images.
      batch_size: Number of images of a batch.
      most: Number of images at most.
    """
    chosen = epoch_order(0, 0, num_examples)[:most]
    num = len(chosen) // batch_size
    return chosen[: num * batch_size].reshape(num, batch_size)


def chosen_windows(
    grid: WindowGrid, num_examples: int, batch_size: int, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return numbers of images and of their windows, of whole batches.

    Args:
      grid: Windows of an image.
      num_examples: Number of training images.
      batch_size: Number of windows of a batch.
      most: Number of windows at most.

    Returns:
      int64 (batches, batch_size) each.
    """
    image, window = grid.choose(num_examples, most)
    num = len(image) // batch_size
    images, windows = (
        x[: num * batch_size].reshape(num, batch_size)
        for x in (epoch_order(0, 0, num_examples)[image], window)
    )
    return images, windows


def mean_statistics(batches: Iterable[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Return the means of the statistics of batches, float64, by their paths."""
    totals, count = dict[str, np.ndarray](), 0
    for found in batches:
        count += 1
        for path, x in jax.device_get(found).items():
            totals[path] = totals.get(path, 0.0) + np.asarray(x, np.float64)
    return {path: total / count for path, total in totals.items()}
