"""The 15 corruptions of ImageNet-C and CIFAR-10-C.

Hendrycks and Dietterich 2019, arXiv:1903.12261. Arguments of a corruption: images in
0..1, float64 (N, H, W, C); parameters of the severity; a random generator per image.
"""

from typing import Any, NamedTuple

import numpy as np

from jaxtrain.errors import UserError
from jaxtrain.plugins.robustness.corruptions import blur, digital, weather
from jaxtrain.plugins.robustness.corruptions.draws import OfImages, each_image
from jaxtrain.plugins.robustness.corruptions.levels import levels

# Maximum size in bytes of the float64 images that are corrupted together.
MAX_BYTES = 2**27
# Offset of the second word of the Philox key; smaller values belong to other streams.
STREAM = 2**34


@each_image
def gaussian_noise(
    image: np.ndarray, scale: float, draw: np.random.Generator
) -> np.ndarray:
    return image + draw.normal(scale=scale, size=image.shape)


@each_image
def shot_noise(
    image: np.ndarray, photons: float, draw: np.random.Generator
) -> np.ndarray:
    """Shot noise: Poisson-distributed photon counts, with mean `photons` for white."""
    return draw.poisson(image * photons) / photons


@each_image
def impulse_noise(
    image: np.ndarray, amount: float, draw: np.random.Generator
) -> np.ndarray:
    """Salt-and-pepper noise: set the fraction `amount` of the values to 0 or 1."""
    where, salt = draw.random((2, *image.shape))
    return np.where(where < amount, (salt < 0.5).astype(image.dtype), image)


# In the order of the paper's tables. The position of a corruption is part of the Philox
# key.
CORRUPTIONS: dict[str, OfImages] = {
    "gaussian_noise": gaussian_noise,
    "shot_noise": shot_noise,
    "impulse_noise": impulse_noise,
    "defocus_blur": blur.defocus_blur,
    "glass_blur": blur.glass_blur,
    "motion_blur": blur.motion_blur,
    "zoom_blur": blur.zoom_blur,
    "snow": weather.snow,
    "frost": weather.frost,
    "fog": weather.fog,
    "brightness": weather.brightness,
    "contrast": digital.contrast,
    "elastic_transform": digital.elastic_transform,
    "pixelate": digital.pixelate,
    "jpeg_compression": digital.jpeg_compression,
}


class Corruption(NamedTuple):
    """A corruption at a severity.

    Attributes:
      name: Key of `CORRUPTIONS`.
      severity: Severity from 1 to 5.
    """

    name: str
    severity: int

    def __call__(self, images: np.ndarray, index: np.ndarray) -> np.ndarray:
        """Corrupt images of 1 or 3 channels, uint8 (N, H, W, C).

        The result is a function of image, corruption, severity and example index.

        Args:
          images: Images to corrupt.
          index: Index of each example, int (N,).
        """
        step = max(1, MAX_BYTES // (8 * images[0].size))
        parts = [
            self._corrupt(images[i : i + step], index[i : i + step])
            for i in range(0, len(images), step)
        ]
        return np.concatenate(parts)

    def of_batch(self, batch: dict[str, Any], index: np.ndarray) -> dict[str, Any]:
        """Corrupt the images of a batch.

        Args:
          batch: Batch with uint8 images.
          index: Index of each example, int (B,).
        """
        return {**batch, "image": self(batch["image"], index)}

    def _corrupt(self, images: np.ndarray, index: np.ndarray) -> np.ndarray:
        level = levels(*images.shape[1:3])[1][self.name][self.severity - 1]
        number = 8 * list(CORRUPTIONS).index(self.name) + self.severity
        draws = [
            np.random.Generator(np.random.Philox(key=[int(i), STREAM + number]))
            for i in index
        ]
        changed = CORRUPTIONS[self.name](images / 255, level, draws)
        # Not rounded: the authors' code truncates.
        return (np.clip(changed, 0, 1) * 255).astype(np.uint8)


def check_shape(image_shape: tuple[int, int, int]) -> None:
    """Raise UserError if images (H, W, C) cannot be corrupted."""
    height, width, channels = image_shape
    if channels not in (1, 3):
        raise UserError(
            f"--corruptions: expected images of 1 or 3 channels, not {channels}; leave "
            "--corruptions out"
        )
    if min(height, width) < 8:
        raise UserError(
            "--corruptions: expected images of 8x8 pixels or more, not "
            f"{width}x{height}; leave --corruptions out"
        )
