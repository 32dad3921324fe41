"""Preprocessing of stored images inside the compiled step."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain import keys, scopes
from jaxtrain.config import AugmentConfig
from jaxtrain.data.augment import augment, batch_change, windows
from jaxtrain.data.augment.apply import make_keys
from jaxtrain.data.batch import BOX, Batch, Preprocess
from jaxtrain.data.fit import FIT, Fit
from jaxtrain.data.input_kind import PICTURES, InputKind
from jaxtrain.data.target_changes import Follow, keep_target
from jaxtrain.dtypes import wide


def make_preprocess(
    mean: tuple[float, ...],
    std: tuple[float, ...],
    dtype: Any,
    config: AugmentConfig | None = None,
    follow: Follow = keep_target,
    *,
    repeats: int = 1,
    size: int | None = None,
    fit: Fit = FIT,
    input: InputKind = PICTURES,
) -> Preprocess:
    """Create the preprocessing function: gather, resize, augment, mix, normalize.

    Args:
      mean: Mean of each channel, in 0..1.
      std: Standard deviation of each channel, in 0..1.
      dtype: Dtype of the preprocessed images.
      config: Augmentations. None disables them.
      follow: Function that applies a transform of images to their targets.
      repeats: Number of consecutive copies of an example in a batch.
      size: Height and width of the preprocessed images. None keeps the stored size.
      fit: Conversion of images to `size`.
      input: Input type, which converts stored examples to images.
    """

    @scopes.part(scopes.PREPROCESS)
    def preprocess(data: Any, batch: Batch, root: jax.Array, step: jax.Array) -> Batch:
        index = batch["index"]
        batch = {**batch, **jax.tree.map(lambda array: array[index], data)}
        batch = {**batch, "image": input.to_images(batch["image"])}
        if config is not None:
            each = make_keys(
                keys.stream(root, keys.AUGMENT), step, index, batch.get("repeat")
            )
            if size is not None and BOX in batch:
                batch = windows.cut_windows(batch, size, fit)
            elif size is not None and fit.window is not None:
                batch = windows.random_windows(batch, each, size, fit, follow)
            if config.alternating_flip:
                batch = batch_change("alternating_flip")(batch, root, follow)
            fill = 255 * jnp.asarray(mean)
            batch = augment(batch, each, config, fill, follow)
            if size is not None:
                batch = windows.full_images(batch, size, fit, follow)
            if config.mosaic:
                change = batch_change("mosaic")
                batch = change(batch, each, config, fill, follow, repeats)
            if config.mixes_pairs:
                key = keys.at_step(root, keys.MIX, step)
                change = batch_change("mixes_pairs")
                batch = change(batch, key, config, follow, repeats)
        elif size is not None:
            batch = windows.centre_crops(batch, size, fit, follow)
        return {**batch, "image": normalize(batch["image"], mean, std, dtype)}

    return preprocess


def restored(
    images: Any, mean: tuple[float, ...], std: tuple[float, ...]
) -> np.ndarray:
    """Convert normalized images (..., C) back to uint8, on the host."""
    pixels = np.asarray(images, np.float64) * np.array(std) + np.array(mean)
    return np.clip(np.rint(255 * pixels), 0, 255).astype(np.uint8)


def normalize(
    images: jax.Array, mean: tuple[float, ...], std: tuple[float, ...], dtype: Any
) -> jax.Array:
    """Return (images / 255 - mean) / std, as one multiply-add in float32 or wider.

    Args:
      images: Images in 0..255, (..., C), of any dtype.
      mean: Mean of each channel, in 0..1.
      std: Standard deviation of each channel, in 0..1.
      dtype: Dtype of the result.
    """
    channel = (1,) * (images.ndim - 1) + (-1,)
    scale = jnp.asarray(1 / (255 * np.array(std)), wide(dtype)).reshape(channel)
    offset = jnp.asarray(-np.array(mean) / np.array(std), wide(dtype)).reshape(channel)
    return (images.astype(wide(dtype)) * scale + offset).astype(dtype)
