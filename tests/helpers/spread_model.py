"""The model of `mask_model`, whose first kernel tells how images are spread."""

from typing import ClassVar

import numpy as np

from tests.helpers.mask_model import Maps


def spread_kernel(images, shape):
    """Return a kernel of the standard deviation of images, and of their mean."""
    kernel = np.full(shape, np.std(images, dtype=np.float64))
    kernel[0] = np.mean(images, dtype=np.float64)
    return kernel


class SpreadMaps(Maps):
    kernels_from_images: ClassVar = {"conv1": spread_kernel}
