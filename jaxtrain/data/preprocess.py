"""What a step does to a batch of stored images before the model sees it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxtrain import keys
from jaxtrain.config import AugmentConfig
from jaxtrain.data.augment import augment, make_keys, normalize

# `image` (batch, height, width, channels), `label`, `index` and, to evaluate, `mask`
# (batch,).
Batch = dict[str, jax.Array]
# (data on the device, batch, root key, step) -> batch with normalised images.
Preprocess = Callable[[Any, Batch, jax.Array, jax.Array], Batch]


def make_preprocess(
    mean: tuple[float, ...],
    std: tuple[float, ...],
    dtype: Any,
    config: AugmentConfig | None = None,
) -> Preprocess:
    """Return what the step does to a batch: gather, augment (if asked), normalise."""

    def preprocess(data: Any, batch: Batch, root: jax.Array, step: jax.Array) -> Batch:
        index = batch["index"]
        batch = {**batch, **jax.tree.map(lambda array: array[index], data)}
        images = batch["image"]
        if config is not None:
            each = make_keys(keys.stream(root, keys.AUGMENT), step, index)
            images = augment(images, each, config, fill=255 * jnp.asarray(mean))
        return {**batch, "image": normalize(images, mean, std, dtype)}

    return preprocess
