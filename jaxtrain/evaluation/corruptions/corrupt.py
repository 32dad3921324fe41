"""Corrupts batches: which corruptions there are, and their randomness."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxtrain.errors import UserError
from jaxtrain.evaluation.corruptions import blur, digital, noise, weather
from jaxtrain.evaluation.corruptions.levels import levels
from jaxtrain.evaluation.corruptions.noise import Draws

# (images in 0..1, numbers of the severity, a generator for each image) -> images.
Function = Callable[[np.ndarray, Any, Draws], np.ndarray]

# In the order of the paper's tables. The order is part of what a seed means.
CORRUPTIONS: dict[str, Function] = {
    "gaussian_noise": noise.gaussian_noise,
    "shot_noise": noise.shot_noise,
    "impulse_noise": noise.impulse_noise,
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
# Images that are corrupted together, as float64.
MAX_BYTES = 2**27
# First half of the key of the draws, above that of any other stream of examples.
STREAM = 2**34


class Corruption(NamedTuple):
    """One of the table, at a severity from 1 to 5."""

    name: str
    severity: int

    def __call__(self, images: np.ndarray, index: np.ndarray) -> np.ndarray:
        """Corrupt uint8 images (N, H, W, C) of 1 or 3 channels.

        What is random in it is a function of the corruption, the severity and the
        number of the example, `index` (N,).
        """
        _, height, width, _ = images.shape
        level = levels(height, width)[1][self.name][self.severity - 1]
        step = max(1, MAX_BYTES // (8 * images[0].size))
        parts = [
            self._corrupt(images[i : i + step], index[i : i + step], level)
            for i in range(0, len(images), step)
        ]
        return np.concatenate(parts)

    def _corrupt(self, images: np.ndarray, index: np.ndarray, level: Any) -> np.ndarray:
        number = 8 * list(CORRUPTIONS).index(self.name) + self.severity
        draws = [
            np.random.Generator(np.random.Philox(key=[int(i), STREAM + number]))
            for i in index
        ]
        changed = CORRUPTIONS[self.name](images / 255, level, draws)
        # As the authors save them: without rounding.
        return (np.clip(changed, 0, 1) * 255).astype(np.uint8)


def check_shape(image_shape: tuple[int, int, int]) -> None:
    """Raise UserError if images (H, W, C) cannot be corrupted."""
    height, width, channels = image_shape
    if channels not in (1, 3):
        raise UserError(
            f"--corruptions: they are defined for grey and colour images, and these "
            f"have {channels} channels; leave the option out"
        )
    if min(height, width) < 8:
        raise UserError(
            f"--corruptions: images of {width}x{height} pixels are smaller than what "
            "the corruptions move; leave the option out"
        )
