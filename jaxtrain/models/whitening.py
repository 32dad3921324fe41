"""Kernel of a convolution that whitens image patches."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

# Added to the eigenvalues, as in airbench94, so that filters of eigenvalues near 0 stay
# finite.
EPSILON = 5e-4
# Number of images whose patches are in memory at once.
CHUNK = 16


def whitening_kernel(images: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Compute the PCA whitening kernel of image patches.

    Filters are the eigenvectors of the patches' second-moment matrix, divided by the
    square roots of their eigenvalues, in descending order of eigenvalues. Outputs are
    uncorrelated, with a mean square of 1.

    Args:
      images: Normalized images, [N, H, W, C].
      shape: (rows, columns, C, rows * columns * C) of the kernel.
    """
    rows, columns, channels, outputs = shape
    size = rows * columns * channels
    assert outputs == size, "the kernel must have one filter per eigenvector"
    moments, num = np.zeros((size, size)), 0
    for start in range(0, len(images), CHUNK):
        some = images[start : start + CHUNK].astype(np.float64)
        # From [N, H', W', C, rows, columns] to the order of an HWIO kernel.
        patches = sliding_window_view(some, (rows, columns), (1, 2))
        patches = patches.transpose(0, 1, 2, 4, 5, 3).reshape(-1, size)
        moments += patches.T @ patches
        num += len(patches)
    values, vectors = np.linalg.eigh(moments / num)
    values, vectors = values[::-1], vectors[:, ::-1]
    # Make the largest entry positive, as the sign of an eigenvector is arbitrary.
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(0)[None], 0)
    kernel = vectors * np.sign(largest) / np.sqrt(np.maximum(values, 0) + EPSILON)
    return kernel.reshape(shape)
