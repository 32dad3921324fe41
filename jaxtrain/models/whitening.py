"""The kernel of a convolution that whitens patches of images."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

# Added to the variances, as in airbench94: directions without any are not blown up.
EPSILON = 5e-4
# Images whose patches lie in memory at once.
CHUNK = 16


def whitening_kernel(images: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the kernel whose outputs are uncorrelated and have a mean square of 1.

    Its filters are the eigenvectors of the second moments of all patches, each divided
    by the root of its eigenvalue: PCA whitening, the largest eigenvalue first.

    Args:
      images: Normalised images, [N, H, W, C].
      shape: (rows, columns, C, rows * columns * C) of the kernel.
    """
    rows, columns, channels, outputs = shape
    size = rows * columns * channels
    assert outputs == size, "a filter for each direction"
    moments, num = np.zeros((size, size)), 0
    for start in range(0, len(images), CHUNK):
        some = images[start : start + CHUNK].astype(np.float64)
        # [N, H', W', C, rows, columns] -> the order of a kernel, HWIO.
        patches = sliding_window_view(some, (rows, columns), (1, 2))
        patches = patches.transpose(0, 1, 2, 4, 5, 3).reshape(-1, size)
        moments += patches.T @ patches
        num += len(patches)
    values, vectors = np.linalg.eigh(moments / num)
    values, vectors = values[::-1], vectors[:, ::-1]
    # An eigenvector's sign is any: that of its largest entry is positive.
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(0)[None], 0)
    kernel = vectors * np.sign(largest) / np.sqrt(np.maximum(values, 0) + EPSILON)
    return kernel.reshape(shape)
