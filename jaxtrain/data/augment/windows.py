"""Resizing of random crops, centre crops and full images to the model's input size."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.data.augment.apply import map_examples
from jaxtrain.data.augment.geometry import ResizedBox
from jaxtrain.data.augment.resize import Box, resize
from jaxtrain.data.batch import BOX
from jaxtrain.data.fit import Fit
from jaxtrain.data.random_windows import CROP_TRIES, Window, largest_window
from jaxtrain.data.target_changes import Follow

# Constant folded into the PRNG keys of windows (see `AUGMENTATIONS`).
NUMBER = 3


def random_windows(
    batch: dict[str, Any], keys: jax.Array, size: int, fit: Fit, follow: Follow
) -> dict[str, Any]:
    """Crop a random window of each image, and resize it to (size, size)."""
    window = fit.window
    assert isinstance(window, Window), "windows of Jitter are cut on the host"
    height, width = batch["image"].shape[1:3]

    def one(key: jax.Array, image: jax.Array, target: Any) -> tuple[jax.Array, Any]:
        box = random_window(jax.random.fold_in(key, NUMBER), height, width, window)
        small = resize(image, box, size, fit.interpolation, within=True)
        return small, follow(target, ResizedBox(box, size, within=True))

    return map_examples(batch, one, keys)


def cut_windows(batch: dict[str, Any], size: int, fit: Fit) -> dict[str, Any]:
    """Resize the crop window of each canvas to (size, size).

    Targets are unchanged: canvases are not used for targets with image coordinates,
    such as masks and boxes (see `jaxtrain.data.canvas`).
    """

    def one(canvas: jax.Array, sides: jax.Array) -> jax.Array:
        box: Any = tuple(sides)
        # Pixels outside the box are uninitialized.
        return resize(canvas, box, size, fit.interpolation, within=True)

    others = {name: value for name, value in batch.items() if name != BOX}
    return {**others, "image": jax.vmap(one)(batch["image"], batch[BOX])}


def centre_crops(batch: dict[str, Any], size: int, fit: Fit, follow: Follow) -> Any:
    """Resize the centre crop of each image to (size, size); see `images.centre_fit`."""
    height, width = batch["image"].shape[1:3]
    return _resize_box(batch, fit.centre_box(height, width, size), size, fit, follow)


def full_images(batch: dict[str, Any], size: int, fit: Fit, follow: Follow) -> Any:
    """Resize each image to (size, size) without cropping."""
    height, width = batch["image"].shape[1:3]
    return _resize_box(batch, (0, 0, width, height), size, fit, follow)


def _resize_box(
    batch: dict[str, Any], sides: tuple[float, ...], size: int, fit: Fit, follow: Follow
) -> dict[str, Any]:
    if batch["image"].shape[1:3] == (size, size):
        return batch
    box: Any = tuple(map(np.float32, sides))

    def one(image: jax.Array, target: Any) -> tuple[jax.Array, Any]:
        small = resize(image, box, size, fit.interpolation)
        return small, follow(target, ResizedBox(box, size))

    return map_examples(batch, one)


def random_window(key: jax.Array, height: int, width: int, window: Window) -> Box:
    """Draw a crop window, as `data.random_windows.random_window` does on the host."""
    draws = jax.random.uniform(key, (2 * CROP_TRIES + 2,), jnp.float32)
    (least, most), ratio = window.scale, jnp.log(np.array(window.ratio, np.float32))
    area = height * width * (least + (most - least) * draws[2::2])
    aspect = jnp.exp(ratio[0] + (ratio[1] - ratio[0]) * draws[3::2])
    w, h = jnp.round(jnp.sqrt(area * aspect)), jnp.round(jnp.sqrt(area / aspect))
    fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
    first, any_fits = jnp.argmax(fits), jnp.any(fits)
    largest_w, largest_h = map(float, largest_window(height, width, window))
    w = jnp.where(any_fits, w[first], largest_w)
    h = jnp.where(any_fits, h[first], largest_h)
    top = _place(draws[0], height - h, any_fits)
    left = _place(draws[1], width - w, any_fits)
    return left, top, left + w, top + h


def _place(draw: jax.Array, room: jax.Array, random: jax.Array) -> jax.Array:
    """Return an integer position in 0..`room`: random, or in the middle."""
    # Rounding in float32 of a draw just below 1 may give the position `room` + 1.
    drawn = jnp.minimum(jnp.floor(draw * (room + 1)), room)
    return jnp.where(random, drawn, jnp.floor(room / 2))
