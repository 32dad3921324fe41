"""Kernel of a convolution that whitens image patches."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

# Added to the eigenvalues before division, as in airbench94, so that filters of
# eigenvalues near 0 remain finite.
EPSILON = 5e-4
# Number of images whose patches are in memory at once.
CHUNK = 16


def whitening_kernel(images: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Compute the PCA whitening kernel of image patches.

    Filters are the eigenvectors of the second-moment matrix of the patches, each
    divided by the square root of its eigenvalue, in descending order of eigenvalues.
    Outputs on these images are uncorrelated, with a mean square of 1.

    Args:
      images: Normalized images, [N, H, W, C].
      shape: Shape of the kernel, (rows, columns, C, rows * columns * C).
    """
    rows, columns, channels, outputs = shape
    size = rows * columns * channels
    assert outputs == size, "the kernel must have one filter per eigenvector"
    moments, num = np.zeros((size, size)), 0
    for start in range(0, len(images), CHUNK):
        some = images[start : start + CHUNK].astype(np.float64)
        # Transpose [N, H', W', C, rows, columns] to the axis order of HWIO kernels.
        patches = sliding_window_view(some, (rows, columns), (1, 2))
        patches = patches.transpose(0, 1, 2, 4, 5, 3).reshape(-1, size)
        moments += patches.T @ patches
        num += len(patches)
    values, vectors = np.linalg.eigh(moments / num)
    values, vectors = values[::-1], vectors[:, ::-1]
    # As the sign of an eigenvector is arbitrary, make its largest entry positive.
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(0)[None], 0)
    kernel = vectors * np.sign(largest) / np.sqrt(np.maximum(values, 0) + EPSILON)
    return kernel.reshape(shape)
