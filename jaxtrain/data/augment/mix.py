"""Examples mixed in pairs: mixup (arXiv:1710.09412) and cutmix (arXiv:1905.04899).

Partners are neighbours in the batch, 0 and 1, 2 and 3, and so on; where examples are
repeated, those of neighbouring examples. The order of the data is a new permutation in
each epoch, so they are any two examples. They lie on one device, so nothing is
exchanged; and they are the same on any number of devices and processes, and however the
batch is cut into micro-batches afterwards. One weight counts for all pairs of a step.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.config import AugmentConfig
from jaxtrain.data.target_changes import Follow, Mixing, Pasting

# Steps of the table of quantiles; between them lies a straight line.
STEPS = 4096
# Of a step with both: probability that it is cutmix and not mixup.
CUTMIX_PROBABILITY = 0.5


def mix_pairs(
    batch: dict[str, Any],
    key: jax.Array,
    config: AugmentConfig,
    follow: Follow,
    repeats: int = 1,
) -> dict[str, Any]:
    """Mix the images of each pair, and join their targets.

    Args:
      batch: Batch of images (B, H, W, C) of an even number of examples.
      follow: What the task makes of two targets, by `Mixing`; with cutmix alone by
        `Pasting`.
      repeats: Times in a row that an example is in the batch.

    Returns:
      The batch with images in float32 and other targets.
    """
    images = batch["image"]
    num, height, width, _ = images.shape
    own, weight = _share(key, height, width, config)
    partners = swap(images, repeats).astype(jnp.float32)
    mixed = partners + own[..., None] * (images.astype(jnp.float32) - partners)
    weights = jnp.full(num, weight)
    swapped = jax.tree.map(lambda x: swap(x, repeats), batch["target"])
    mixing = Mixing(weights) if config.mixup else Pasting(weights, own)
    joined = follow((batch["target"], swapped), mixing)
    return {**batch, "image": mixed, "target": joined}


def swap(x: jax.Array, repeats: int = 1) -> jax.Array:
    """Return the values of the partner of each example, (B, ...)."""
    pairs = x.reshape(x.shape[0] // (2 * repeats), 2, repeats, *x.shape[1:])
    return pairs[:, ::-1].reshape(x.shape)


def draw_beta(key: jax.Array, a: float, b: float) -> jax.Array:
    """Draw from Beta(a, b), float32 (), by a table of its quantiles.

    `jax.random.beta` draws again until a draw is accepted: a loop of unknown length, at
    each round of which a GPU waits for the host.
    """
    draw = jax.random.uniform(key, (), jnp.float32)
    points = np.linspace(0, 1, STEPS + 1, dtype=np.float32)
    return jnp.interp(draw, points, _quantiles(a, b))


@functools.lru_cache
def _quantiles(a: float, b: float) -> np.ndarray:
    from scipy.special import betaincinv  # 0.2 s of CPU time, and few runs mix.

    return betaincinv(a, b, np.linspace(0, 1, STEPS + 1)).astype(np.float32)


def _share(
    key: jax.Array, height: int, width: int, config: AugmentConfig
) -> tuple[jax.Array, jax.Array]:
    """Return an image's share of each mixed pixel, (H, W), and of the target, ()."""
    _, cut, share, box = jax.random.split(key, 4)
    own, weight = jnp.ones((height, width), jnp.float32), jnp.float32(1)
    if config.mixup:
        weight = draw_beta(share, config.mixup, config.mixup)
        own = jnp.full((height, width), weight)
    if config.cutmix:
        kept = _outside(box, height, width, config.cutmix)
        # Of both the one that is drawn; mixup has no part where it is not asked for.
        probability = np.float32(CUTMIX_PROBABILITY if config.mixup else 1)
        cuts = jax.random.bernoulli(cut, probability)
        own, weight = jnp.where(cuts, kept, own), jnp.where(cuts, kept.mean(), weight)
    return own, weight


def _outside(key: jax.Array, height: int, width: int, alpha: float) -> jax.Array:
    """Return 0 in a random rectangle, which the partner fills, and 1 outside, (H, W).

    Its part of the area is drawn before what of it lies outside of the image is cut
    off; its middle is any pixel (torchvision's CutMix).
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
