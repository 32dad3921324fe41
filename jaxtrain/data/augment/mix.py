"""Mixup (arXiv:1710.09412) and cutmix (arXiv:1905.04899) of pairs of examples.

Partners are neighbours in the batch: 0 and 1, 2 and 3, and so on. With repeated
examples, copies of neighbouring examples are partners. Each epoch has a new permutation
of the data, so pairs are random. Partners are on the same device, so mixing needs no
communication, and pairs do not depend on the number of devices, processes or
micro-batches. All pairs of a step have the same mixing weight.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.config import AugmentConfig
from jaxtrain.data.target_changes import Follow, Mixing, Pasting

# Number of intervals of the quantile table that `draw_beta` interpolates.
STEPS = 4096
# Probability of cutmix in a step if mixup is also enabled.
CUTMIX_PROBABILITY = 0.5


def mix_pairs(
    batch: dict[str, Any],
    key: jax.Array,
    config: AugmentConfig,
    follow: Follow,
    repeats: int = 1,
) -> dict[str, Any]:
    """Mix the images of each pair, and combine their targets.

    Args:
      batch: Batch of images (B, H, W, C) with an even number of examples.
      key: PRNG key of the step.
      config: Augmentations to apply, with the parameters of the Beta distributions.
      follow: Function of the task, (two targets, `Mixing`) -> target. With cutmix
        alone, the second argument is a `Pasting`.
      repeats: Number of consecutive copies of an example in the batch.

    Returns:
      The batch with images in float32 and mixed targets.
    """
    images = batch["image"]
    num, height, width, _ = images.shape
    share, weight = _mixing_weights(key, height, width, config)
    partners = swap(images, repeats).astype(jnp.float32)
    mixed = partners + share[..., None] * (images.astype(jnp.float32) - partners)
    weights = jnp.full(num, weight)
    swapped = jax.tree.map(lambda x: swap(x, repeats), batch["target"])
    mixing = Mixing(weights) if config.mixup else Pasting(weights, share)
    joined = follow((batch["target"], swapped), mixing)
    return {**batch, "image": mixed, "target": joined}


def swap(x: jax.Array, repeats: int = 1) -> jax.Array:
    """Swap the examples of each pair along the leading axis, (B, ...).

    Args:
      x: Array of a batch.
      repeats: Number of consecutive copies of an example in the batch.
    """
    pairs = x.reshape(x.shape[0] // (2 * repeats), 2, repeats, *x.shape[1:])
    return pairs[:, ::-1].reshape(x.shape)


def draw_beta(key: jax.Array, a: float, b: float) -> jax.Array:
    """Draw from Beta(a, b), float32 (), by inverse transform sampling.

    `jax.random.beta` loops until a sample is accepted, and a GPU waits for the host in
    each iteration.
    """
    draw = jax.random.uniform(key, (), jnp.float32)
    points = np.linspace(0, 1, STEPS + 1, dtype=np.float32)
    return jnp.interp(draw, points, _quantiles(a, b))


@functools.lru_cache
def _quantiles(a: float, b: float) -> np.ndarray:
    # Imported lazily: the import takes 0.2 s of CPU time, and most runs do not mix.
    from scipy.special import betaincinv

    return betaincinv(a, b, np.linspace(0, 1, STEPS + 1)).astype(np.float32)


def _mixing_weights(
    key: jax.Array, height: int, width: int, config: AugmentConfig
) -> tuple[jax.Array, jax.Array]:
    """Draw the weights of an example; its partner's weights are 1 minus these.

    Returns:
      Weight of each pixel, float32 (H, W); weight of the target, float32 ().
    """
    _, cut, share_key, box = jax.random.split(key, 4)
    pixels, weight = jnp.ones((height, width), jnp.float32), jnp.float32(1)
    if config.mixup:
        weight = draw_beta(share_key, config.mixup, config.mixup)
        pixels = jnp.full((height, width), weight)
    if config.cutmix:
        outside = _outside(box, height, width, config.cutmix)
        # If mixup is also enabled, either mixup or cutmix is drawn.
        probability = np.float32(CUTMIX_PROBABILITY if config.mixup else 1)
        cuts = jax.random.bernoulli(cut, probability)
        pixels, weight = (
            jnp.where(cuts, outside, pixels),
            jnp.where(cuts, outside.mean(), weight),
        )
    return pixels, weight


def _outside(key: jax.Array, height: int, width: int, alpha: float) -> jax.Array:
    """Draw a mask, float32 (H, W): 0 in the rectangle to paste, 1 outside.

    As in torchvision's CutMix, the rectangle has a random area and a uniform centre,
    and is then clipped to the image.
    """
    part_key, place_key = jax.random.split(key)
    reach = 0.5 * jnp.sqrt(1 - draw_beta(part_key, alpha, alpha))
    bounds = jnp.array([height, width], jnp.int32)
    row, column = jax.random.randint(place_key, (2,), 0, bounds, jnp.int32)
    h, w = (jnp.floor(reach * side).astype(jnp.int32) for side in (height, width))
    rows, columns = jnp.arange(height)[:, None], jnp.arange(width)
    inside = (rows >= row - h) & (rows < row + h)
    inside &= (columns >= column - w) & (columns < column + w)
    return jnp.where(inside, 0, 1).astype(jnp.float32)
