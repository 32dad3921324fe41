"""Channel mean and standard deviation of the images of a source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jaxtrain.data.replacements import read_filled

if TYPE_CHECKING:
    from jaxtrain.config import DataConfig
    from jaxtrain.data.image_source import Source
    from jaxtrain.data.sources import Splits

# Splits with more bytes of uint8 pixels than this are sampled.
STATISTICS_BYTES = 2**30
# Maximum number of bytes of pixels to read at a time.
CHUNK_BYTES = 2**24


def mean_and_std(
    config: DataConfig, splits: Splits, source: Source
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the configured channel mean and standard deviation, or measure both.

    Args:
      config: Data section of the config.
      splits: Splits of the run.
      source: Training split to measure, or its copy in memory.
    """
    if config.mean is None or config.std is None:
        return statistics(splits.seen(source))
    return config.mean, config.std


def histogram(images: np.ndarray) -> np.ndarray:
    """Return the histogram of each channel, (C, 256), of uint8 images (..., C)."""
    channels = images.reshape(-1, images.shape[-1]).T
    return np.stack([np.bincount(values, minlength=256) for values in channels])


def statistics(
    source: Source, max_examples: int = 10_000
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Measure the mean and standard deviation of each channel, in 0..1.

    Args:
      source: Source of images. All images are used if they take at most 1 GiB.
      max_examples: Number of evenly spaced images to use from a larger source.
    """
    num, image_bytes = len(source), int(np.prod(source.image_shape))
    if num * image_bytes > STATISTICS_BYTES:
        num = min(num, max_examples)
    indices = np.arange(num) * len(source) // num
    step = max(1, CHUNK_BYTES // image_bytes)
    counts = np.zeros((source.image_shape[-1], 256), np.int64)
    for start in range(0, num, step):
        read = read_filled(source, indices[start : start + step])
        counts += histogram(source.pictures(read["image"]))
    values = np.arange(256) / 255
    weights = counts / counts.sum(axis=1, keepdims=True)
    mean = weights @ values
    variance = (weights * (values - mean[:, None]) ** 2).sum(axis=1)
    # The lower bound avoids division by 0 for constant channels.
    std = np.maximum(np.sqrt(variance), 1 / 255)
    return tuple(mean.tolist()), tuple(std.tolist())
