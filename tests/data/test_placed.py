"""Targets follow their images where the host resizes and cuts them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtrain.data import images
from jaxtrain.data.files import StoredFile
from jaxtrain.data.image_source import Source
from jaxtrain.data.images import Fit, Window
from jaxtrain.data.placed import Placed

SIZE = 32
FITS = {
    "center": Fit(),
    "squash": Fit(crop_mode="squash"),
    "border": Fit(crop_mode="border"),
    "window": Fit(window=Window((0.3, 0.9))),
}
OUTSIDE = 255


@dataclass(frozen=True)
class Marked:
    """Images that tell each pixel's place: red grows with x, green with y.

    A target is a mask of the same, in blocks of 8 pixels, and the corners of the image.
    """

    sizes: tuple[tuple[int, int], ...]
    is_bad: bool = False
    image_shape = (None, None, 3)

    @property
    def facts(self) -> dict[str, Any]:
        return {}

    def strata(self, indices: np.ndarray) -> np.ndarray:
        return np.zeros(len(indices), np.int32)

    def read(self, indices: np.ndarray) -> tuple[Any, list[Any]]:
        stored, targets = [], []
        for index in indices.tolist():
            height, width = self.sizes[index]
            rows, columns = np.mgrid[:height, :width]
            image = np.zeros((height, width, 3), np.uint8)
            image[..., 0], image[..., 1] = 2 * columns, 2 * rows
            bad = StoredFile("bad.png", b"no image")
            stored.append(bad if self.is_bad and index == 0 else image)
            mask = (columns // 8 + 16 * (rows // 8)).astype(np.uint8)
            corners = np.array([[0, 0], [width, height]], np.float32)
            targets.append((mask, corners))
        return stored, targets

    def place(self, target: Any, placed: Placed) -> dict[str, np.ndarray]:
        if target is None:
            blank = np.full(placed.size, OUTSIDE, np.uint8)
            return {"mask": blank, "corners": np.zeros((2, 2), np.float32)}
        mask, corners = target
        moved = placed.pixels(mask, border=OUTSIDE)
        return {"mask": moved, "corners": placed.points(corners)}


def opened(store: Marked, fit: Fit) -> Source:
    indices = np.arange(len(store.sizes))
    return Source(store, indices, (SIZE, SIZE, 3), 2**20, fit)


def read(source: Source) -> dict[str, Any]:
    indices = np.arange(len(source))
    seeds = indices[:, None] if source.canvas_shape else None
    return source.read(indices, seeds)


@settings(max_examples=40, deadline=None)
@given(
    height=st.integers(20, 120),
    width=st.integers(20, 120),
    mode=st.sampled_from(sorted(FITS)),
)
def test_masks_and_points_lie_where_their_pixels_are(
    height: int, width: int, mode: str
):
    batch = read(opened(Marked(((height, width),)), FITS[mode]))
    image, mask = batch["image"][0].astype(float), batch["target"]["mask"][0]
    (left, top), (right, bottom) = batch["target"]["corners"][0].astype(float)
    # Where each pixel of the result is in the stored image, by the corners alone.
    middles = np.arange(SIZE) + 0.5
    x = (middles - left) * width / (right - left)
    y = (middles - top) * height / (bottom - top)
    inside = np.outer((y > 0) & (y < height), (x > 0) & (x < width))
    assert (mask[~inside] == OUTSIDE).all()
    assert (image[~inside] == images.BORDER).all()
    if mode != "border":
        assert inside.all()
    # Means at the border of the image are of fewer pixels.
    step = max(1.0, width / (right - left), height / (bottom - top))
    deep_x = (x > 2 * step) & (x < width - 2 * step)
    deep_y = (y > 2 * step) & (y < height - 2 * step)
    deep = np.outer(deep_y, deep_x)
    grid = np.broadcast_to(x, (SIZE, SIZE)), np.broadcast_to(y[:, None], (SIZE, SIZE))
    for channel, place in enumerate(grid):
        # 2 levels a pixel, from the middle of the first; rounded twice.
        assert np.abs(image[..., channel] - 2 * (place - 0.5))[deep].max(initial=0) <= 2
    blocks = (grid[0] // 8 + 16 * (grid[1] // 8)).astype(np.uint8)
    # A middle on the border of two blocks may fall to either.
    clear = (np.abs(grid[0] % 8 - 4) < 3.99) & (np.abs(grid[1] % 8 - 4) < 3.99)
    assert np.array_equal(mask[inside & clear], blocks[inside & clear])
