"""Boxes of images that become an image of another size: the centre, or at random."""

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

# How images of other shapes become square (see `DataConfig.crop_mode`).
CROP_MODES = ("center", "squash", "border")


@dataclass(frozen=True)
class Fit:
    """Resizing of images of other sizes to one size.

    Attributes:
      centre_part: of the shorter side, what is kept of an image made smaller.
      interpolation: bilinear or bicubic.
      crop_mode: One of `CROP_MODES`.
      window: of the random windows of training; None: there are none. Those of a
        `Jitter` are cut on the host alone.
      window_size: height and width that the step resizes them to, or the largest; None:
        those of other images.
      white_level: Value of 16 bits that becomes 255; None: the largest.
    """

    centre_part: float = 224 / 256
    interpolation: str = "bilinear"
    crop_mode: str = "center"
    window: Window | Jitter | None = None
    window_size: int | None = None
    white_level: int | None = None

    def centre_box(self, height: int, width: int, size: int) -> Box:
        """Return the box that is resized to `size` x `size`: a centred square.

        It has the shorter side of the image; a part of it if that is more than `size`,
        which is the usual way of evaluation: shorter side to 256, centre 224. With
        `squash` it is the whole image. With `border` it has the longer side, and what
        is beyond the image, whole pixels of the result, becomes border.
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
        """Draw the random window of an image, a function of the seed and the sizes.

        Args:
          seed: Numbers, 0 or more.
          size: Height and width that the window is resized to.
        """
        if isinstance(self.window, Jitter):
            return self._jittered(height, width, seed, size, self.window)
        assert self.window is not None
        return random_window(height, width, seed, self.window)

    def _jittered(
        self, height: int, width: int, seed: Sequence[int], size: int, jitter: Jitter
    ) -> Box:
        """Draw a factor, and the place of the window; all are as likely.

        The image becomes whole pixels, and so its border lies between pixels.
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
