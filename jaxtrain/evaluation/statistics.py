"""Recomputed batch-norm statistics: means over batches of training images."""

import contextlib
from collections.abc import Generator, Mapping
from typing import Any

import jax
import numpy as np

from jaxtrain.config import DataConfig
from jaxtrain.data import loader
from jaxtrain.data.datasets import Dataset
from jaxtrain.data.loader import HostBatch
from jaxtrain.data.window_grid import WindowGrid
from jaxtrain.evaluation.evaluate import ModelView, evaluate
from jaxtrain.evaluation.reducers import MeanOfBatches
from jaxtrain.parallel import data_sharding
from jaxtrain.training.norm_statistics import WINDOW, chosen_windows
from jaxtrain.trees import by_path

# Reducers of a program whose outputs are the batch-norm statistics of a batch, by path.
MEAN = (MeanOfBatches(),)


def mean_statistics(
    model: ModelView,
    dataset: Dataset,
    config: DataConfig,
    grid: WindowGrid,
    batch_size: int,
    most: int,
) -> dict[str, np.ndarray]:
    """Return the mean batch-norm statistics over batches, float64, by path.

    The batches are deterministic given the number of images.

    Args:
      model: Model whose program outputs batch-norm statistics.
      dataset: Training split of the run.
      config: Data section of the config.
      grid: Sliding windows of an image.
      batch_size: Global number of windows per batch.
      most: Maximum number of windows.
    """
    mesh, num = model.mesh, len(dataset.source)
    images, windows = chosen_windows(grid, num, batch_size, most)
    rows = data_sharding.local_rows(mesh, batch_size)

    def batches() -> Generator[HostBatch, None, None]:
        read = loader.chosen_batches(config, dataset, mesh, images)
        with contextlib.closing(read):
            for batch, window in zip(read, windows[:, rows], strict=True):
                yield {**batch, WINDOW: window.astype(np.int32)}

    (means,) = evaluate(
        model, dataset, MEAN, config, batch_size=batch_size, batches=batches()
    )
    return means


def with_statistics(model_state: Any, means: Mapping[str, np.ndarray]) -> Any:
    """Replace batch-norm statistics in a model's state; dtypes are preserved.

    Args:
      model_state: State of a model other than parameters.
      means: New batch-norm statistics, by path.
    """
    flat, tree = by_path(model_state), jax.tree.structure(model_state)
    return tree.unflatten(
        means[path].astype(x.dtype) if path in means else x for path, x in flat.items()
    )
