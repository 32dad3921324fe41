"""Weights for images of one number of channels, made ones for another, as timm does.

An image whose channels all are the same then gets the same features, if its channels
are also normalised alike.
"""

import numpy as np


def convert(kernel: np.ndarray, channels: int) -> np.ndarray:
    """Return the kernel (rows, columns, in, out) of a first layer for other channels.

    One channel stands for all: the sum. Of more, they repeat in turn, scaled so that
    the sum over them stays.
    """
    old = kernel.shape[2]
    if channels == 1:
        wide = np.promote_types(kernel.dtype, np.float32)
        return kernel.sum(2, dtype=wide, keepdims=True).astype(kernel.dtype)
    scale = np.asarray(old / channels, np.promote_types(kernel.dtype, np.float32))
    return kernel[:, :, np.arange(channels) % old] * scale


def statistics(
    mean: tuple[float, ...], std: tuple[float, ...], channels: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the mean and deviation of each channel for other channels, likewise."""

    def each(values: tuple[float, ...]) -> tuple[float, ...]:
        if channels == len(values):
            return values
        if channels == 1:
            return (sum(values) / len(values),)
        return tuple(values[i % len(values)] for i in range(channels))

    return each(mean), each(std)
