"""Centre and random crops, as boxes to be resized to the input size."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtrain.data.random_windows import (
    Box,
    Jitter,
    Window,
    place_along,
    random_window,
    uniform,
)

# Conversions of non-square images to squares (see `DataConfig.crop_mode`).
CROP_MODES = ("center", "squash", "border")


@dataclass(frozen=True)
class Fit:
    """Conversion of images of any size to a fixed size.

    Attributes:
      centre_part: Side of the centre crop as a fraction of the shorter side of the
        image; timm's `crop_pct`. The fraction is 1 for images whose shorter side does
        not exceed the fixed size.
      interpolation: Interpolation, bilinear or bicubic.
      crop_mode: One of `CROP_MODES`.
      window: Distribution of random training windows. With `Jitter`, windows are cut on
        the host. None disables random windows.
      window_size: Height and width to which the training step resizes the windows; with
        progressive resizing, the maximum. None means the size of evaluation images.
      white_level: 16-bit value that is mapped to 255. None means 65535.
    """

    centre_part: float = 224 / 256
    interpolation: str = "bilinear"
    crop_mode: str = "center"
    window: Window | Jitter | None = None
    window_size: int | None = None
    white_level: int | None = None

    def centre_box(self, height: int, width: int, size: int) -> Box:
        """Return the box to resize to `size` x `size`, given `crop_mode`.

        - `center`: the largest centred square, scaled by `centre_part` if its side
          exceeds `size`. The default is the usual evaluation transform: resize the
          shorter side to 256, then centre-crop 224.
        - `squash`: the full image.
        - `border`: a square around the image; its side is the longer image side. The
          border has an integral number of output pixels.
        """
        if self.crop_mode == "squash":
            return 0.0, 0.0, float(width), float(height)
        if self.crop_mode == "border":
            left, right = _bordered(width, size, max(height, width))
            top, bottom = _bordered(height, size, max(height, width))
            return left, top, right, bottom
        side = float(min(height, width))
        if side > size:
            side *= self.centre_part
        left, top = (width - side) / 2, (height - side) / 2
        return left, top, left + side, top + side

    def draw(self, height: int, width: int, seed: Sequence[int], size: int) -> Box:
        """Draw a random window of an image, deterministic given the arguments.

        Args:
          height: Height of the image in pixels.
          width: Width of the image in pixels.
          seed: Any number of non-negative integers.
          size: Height and width to which the window is resized.
        """
        if isinstance(self.window, Jitter):
            return self._jittered(height, width, seed, size, self.window)
        assert self.window is not None
        return random_window(height, width, seed, self.window)

    def _jittered(
        self, height: int, width: int, seed: Sequence[int], size: int, jitter: Jitter
    ) -> Box:
        """Draw a window of large-scale jitter: uniform scale factor, uniform position.

        The scaled image has integral sides, so that its edges are at pixel boundaries.
        """
        left, top, right, bottom = self.centre_box(height, width, jitter.size)
        draws = uniform(seed, 3)
        factor = jitter.scale[0] + (jitter.scale[1] - jitter.scale[0]) * draws[0]
        rows = max(1, round(height * jitter.size / (bottom - top) * factor))
        columns = max(1, round(width * jitter.size / (right - left) * factor))
        top, bottom = place_along(draws[1], height, rows, size)
        left, right = place_along(draws[2], width, columns, size)
        return left, top, right, bottom


def _bordered(stored: int, size: int, longest: int) -> tuple[float, float]:
    new = max(1, round(stored * size / longest))
    scale = stored / new
    start = -((size - new) // 2) * scale
    return start, start + size * scale


FIT = Fit()
