"""Recomputation of batch-norm statistics for averaged weights, from training images.

Running statistics from training do not match the activations of the averaged weights
(Izmailov et al. 2018, arXiv:1803.05407).
"""

from collections.abc import Mapping
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

# Maximum number of training images, or windows, for recomputed statistics.
NUM_IMAGES = 10_000
# Key in a batch: index of the sliding window of each example, int (B,).
WINDOW = "window"


def statistics_of_batch(
    graphdef: Any,
    params: Any,
    model_state: Any,
    images: Any,
    momenta: Mapping[str, float],
    frozen: Frozen = NOTHING,
    cpus: Mesh | None = None,
) -> dict[str, jax.Array]:
    """Compute the batch-norm statistics of a batch, keyed by path in `model_state`.

    Args:
      graphdef: Structure of the model.
      params: Parameters of the model.
      model_state: Other state of the model.
      images: Preprocessed images (B, H, W, C).
      momenta: Momentum of each running statistic to recompute, with the same keys.
      frozen: Layers that run in evaluation mode.
      cpus: Data-parallel mesh of CPU devices (see `apply_model`); None on accelerators.
    """

    def from_zero(path: Any, x: jax.Array) -> jax.Array:
        return jnp.zeros_like(x) if path_name(path) in momenta else x

    # Starting at 0, an update yields (1 - momentum) times the batch statistics.
    zeros = jax.tree_util.tree_map_with_path(from_zero, model_state)
    key = jax.random.key(0)
    _, after = apply_model(
        graphdef, params, zeros, images, key, frozen=frozen, cpus=cpus
    )
    found = by_path(after)
    return {path: found[path] / (1 - momentum) for path, momentum in momenta.items()}


def chosen_images(num_examples: int, batch_size: int, most: int) -> np.ndarray:
    """Choose the training images for recomputed batch-norm statistics.

    Args:
      num_examples: Number of training images.
      batch_size: Number of images per batch.
      most: Maximum number of images.

    Returns:
      Image indices, int64 (batches, batch_size).
    """
    chosen = epoch_order(0, 0, num_examples)[:most]
    num = len(chosen) // batch_size
    return chosen[: num * batch_size].reshape(num, batch_size)


def chosen_windows(
    grid: WindowGrid, num_examples: int, batch_size: int, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """Choose sliding windows of training images for recomputed batch-norm statistics.

    Args:
      grid: Grid of sliding windows in an image.
      num_examples: Number of training images.
      batch_size: Number of windows per batch.
      most: Maximum number of windows.

    Returns:
      Image indices and window indices, int64 (batches, batch_size) each.
    """
    image, window = grid.choose(num_examples, most)
    num = len(image) // batch_size
    images, windows = (
        x[: num * batch_size].reshape(num, batch_size)
        for x in (epoch_order(0, 0, num_examples)[image], window)
    )
    return images, windows
