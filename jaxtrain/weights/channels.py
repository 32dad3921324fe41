"""Conversion of weights to another number of image channels, as in timm.

The features of a grey image (equal channels) are unchanged if all channels have the
same normalization.
"""

import numpy as np


def convert(kernel: np.ndarray, channels: int) -> np.ndarray:
    """Convert a kernel (rows, columns, in, out) to `channels` input channels.

    For one channel, the kernel is summed over its input channels. For more channels,
    the input channels repeat cyclically, scaled to preserve their sum.
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
    """Convert per-channel mean and standard deviation to `channels` channels."""

    def each(values: tuple[float, ...]) -> tuple[float, ...]:
        if channels == len(values):
            return values
        if channels == 1:
            return (sum(values) / len(values),)
        return tuple(values[i % len(values)] for i in range(channels))

    return each(mean), each(std)
