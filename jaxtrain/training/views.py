"""Test-time augmentation: average the predictions for several views of an image.

Probabilities of the views are averaged, as in Krizhevsky et al. 2012. With averaged
logits, a single confident view would outvote all others.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.data.window_grid import starts
from jaxtrain.dtypes import widen
from jaxtrain.training.scan import repeat

# Images (B, H, W, C) -> outputs of the model, (B, outputs) or (B, H, W, outputs).
Apply = Callable[[jax.Array], jax.Array]
# Function (apply, images, (height, width) of the model's input) -> outputs. Images may
# be larger than the input size.
View = Callable[[Apply, jax.Array, tuple[int, int]], jax.Array]


def plain(apply: Apply, pixels: jax.Array, size: tuple[int, int]) -> jax.Array:
    """Outputs for the images without augmentation."""
    return apply(pixels)


def flip(apply: Apply, pixels: jax.Array, size: tuple[int, int]) -> jax.Array:
    """Average predictions for the images and their horizontal flips."""
    return _mean(apply, jnp.stack([pixels, pixels[:, :, ::-1]]))


def five_crop(apply: Apply, pixels: jax.Array, size: tuple[int, int]) -> jax.Array:
    """Average predictions for corner and centre crops (torchvision's FiveCrop)."""
    return _mean(apply, crops(pixels, size))


def ten_crop(apply: Apply, pixels: jax.Array, size: tuple[int, int]) -> jax.Array:
    """Average predictions for five crops and their flips (Krizhevsky et al. 2012)."""
    five = crops(pixels, size)
    return _mean(apply, jnp.concatenate([five, five[:, :, :, ::-1]]))


def crops(pixels: jax.Array, size: tuple[int, int]) -> jax.Array:
    """Crop the four corners and the centre, (5, B, height, width, C).

    The order is torchvision's: top left, top right, bottom left, bottom right, centre.
    """
    (height, width), (full_height, full_width) = size, pixels.shape[1:3]
    bottom, right = full_height - height, full_width - width
    corners = [(0, 0), (0, right), (bottom, 0), (bottom, right)]
    corners.append((round(bottom / 2), round(right / 2)))
    return jnp.stack([pixels[:, y : y + height, x : x + width] for y, x in corners])


def _mean(apply: Apply, views: jax.Array) -> jax.Array:
    """Log of the mean probabilities over `views`, an array (V, B, H, W, C) of images.

    The log-probabilities can replace logits. Views run sequentially to bound memory.
    """

    def body(carry: None, pixels: jax.Array) -> tuple[None, jax.Array]:
        return carry, apply(pixels)

    logits = repeat(body, None, views)[1]
    logs = jax.nn.log_softmax(widen(logits), axis=-1)
    return jax.nn.logsumexp(logs, axis=0) - jnp.log(len(logs))


def sliding_windows(
    apply: Apply, pixels: jax.Array, size: tuple[int, int]
) -> jax.Array:
    """Log of the mean probabilities of each pixel over overlapping windows.

    All windows of a batch of images form one batch for the model. The window positions
    are the same as in MMSegmentation's `slide` and MONAI's `sliding_window_inference`:
    the last window of a row or column ends at the image border.
    """
    (height, width), full = size, pixels.shape[1:3]
    if full == size:
        return apply(pixels)
    tops, lefts = (starts(*sides) for sides in zip(full, size, strict=True))
    rows = jnp.stack([pixels[:, y : y + height] for y in tops], 1)
    windows = jnp.stack([rows[:, :, :, x : x + width] for x in lefts], 2)
    logits = apply(windows.reshape(-1, *windows.shape[3:]))
    logs = jax.nn.log_softmax(widen(logits), axis=-1)
    logs = logs.reshape(*windows.shape[:-1], logs.shape[-1])
    # Axes: image, window row and column, pixel row and column, class.
    across = _joined([logs[:, :, j] for j in range(len(lefts))], lefts, full[1], 3)
    total = _joined([across[:, i] for i in range(len(tops))], tops, full[0], 1)
    counts = np.outer(_covered(tops, height, full[0]), _covered(lefts, width, full[1]))
    return total - jnp.log(jnp.asarray(counts, total.dtype))[..., None]


def _joined(
    windows: Sequence[jax.Array], starts: Sequence[int], size: int, dim: int
) -> jax.Array:
    """Add up overlapping windows along a dim, in log space (log-sum-exp).

    Args:
      windows: Log-probabilities of each window.
      starts: First pixel of each window along `dim`.
      size: Number of pixels of the result along `dim`.
      dim: Dim along which the windows overlap, pixel rows or columns.
    """
    shape = list(windows[0].shape)
    shape[dim] = size
    total = jnp.full(shape, -jnp.inf, windows[0].dtype)
    for window, start in zip(windows, starts, strict=True):
        index = (*[slice(None)] * dim, slice(start, start + window.shape[dim]))
        total = total.at[index].set(jnp.logaddexp(total[index], window))
    return total


def _covered(starts: Sequence[int], length: int, size: int) -> np.ndarray:
    """Number of windows of `length` pixels that cover each pixel of a dim, (size,)."""
    counts = np.zeros(size, int)
    for start in starts:
        counts[start : start + length] += 1
    return counts


# Test-time augmentations by option value.
VIEWS: dict[str, View] = {"flip": flip, "five_crop": five_crop, "ten_crop": ten_crop}
# Views that take images larger than the model's input size.
CROPS = ("five_crop", "ten_crop")


def named(name: str | None) -> View:
    """Return the test-time augmentation called `name`; `plain` for None."""
    return plain if name is None else VIEWS[name]
