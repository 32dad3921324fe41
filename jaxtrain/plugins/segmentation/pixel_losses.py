"""Segmentation losses per image: logits (B, H, W, C) and classes (B, H, W) -> (B,).

The losses ignore pixels where `counts`, bool (B, H, W), is False. An image without
valid pixels has a loss of 0.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from jaxtrain.dtypes import widen


def cross_entropy_of_pixels(
    logits: jax.Array,
    classes: jax.Array,
    counts: jax.Array,
    *,
    class_weights: Sequence[float] | None = None,
    gamma: float = 0.0,
) -> jax.Array:
    """Cross entropy per image: mean over its pixels, weighted by class.

    With `gamma` > 0, this is the focal loss: the loss of a pixel is also multiplied by
    (1 - p)^gamma, where p is the predicted probability of the true class (Lin et al.
    2017, arXiv:1708.02002).

    Args:
      logits: Logits of any float dtype; the loss is at least float32.
      classes: True classes, integers; arbitrary where `counts` is False.
      counts: Mask of valid pixels, bool (B, H, W).
      class_weights: Weight of each class, (C,). Defaults to 1 for all classes.
      gamma: Focusing parameter, 0 or at least 1.
    """
    log_p = jax.nn.log_softmax(widen(logits))
    true = jnp.where(counts, classes, 0)
    of_true = jnp.take_along_axis(log_p, true[..., None], -1)[..., 0]
    losses = -of_true
    if gamma:
        losses *= (1 - jnp.exp(of_true)) ** gamma
    weights = counts.astype(losses.dtype)
    if class_weights is not None:
        weights *= jnp.asarray(class_weights, losses.dtype)[true]
    return _ratio((weights * losses).sum((1, 2)), weights.sum((1, 2)))


def dice_of_pixels(
    logits: jax.Array, classes: jax.Array, counts: jax.Array
) -> jax.Array:
    """Soft Dice loss per image: mean over the classes present in the image.

    The loss of a class is 1 - 2 sum(p t) / (sum(p) + sum(t)), where p and t are its
    probability and one-hot target at a pixel (Milletari et al. 2016, arXiv:1606.04797).
    """
    p, true = _shares(logits, classes, counts)
    both, whole = (p * true).sum(1), (p + true).sum(1)
    present = true.any(1)
    losses = jnp.where(present, 1 - _ratio(2 * both, whole), 0)
    return _ratio(losses.sum(-1), present.sum(-1).astype(losses.dtype))


def lovasz_of_pixels(
    logits: jax.Array, classes: jax.Array, counts: jax.Array
) -> jax.Array:
    """Lovasz-Softmax loss per image: mean over the classes present in the image.

    Extends 1 - IoU from masks to probabilities (Berman et al. 2018, arXiv:1705.08790).
    """
    p, true = _shares(logits, classes, counts)
    # Ignored pixels have error 0, and are sorted last.
    errors = jnp.abs(true - p)
    order = jnp.argsort(-errors, axis=1)
    errors, of_class = (jnp.take_along_axis(x, order, 1) for x in (errors, true))
    total = of_class.sum(1, keepdims=True)
    hits = total - jnp.cumsum(of_class, 1)
    union = total + jnp.cumsum(1 - of_class, 1)
    jaccard = 1 - hits / union
    steps = jnp.diff(jaccard, axis=1, prepend=jnp.zeros_like(total))
    present = true.any(1)
    losses = jnp.where(present, (errors * jax.lax.stop_gradient(steps)).sum(1), 0)
    return _ratio(losses.sum(-1), present.sum(-1).astype(losses.dtype))


def _shares(
    logits: jax.Array, classes: jax.Array, counts: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Probabilities and one-hot targets, each (B, pixels, C); 0 for ignored pixels."""
    p = jax.nn.softmax(widen(logits))
    num, num_classes = len(logits), logits.shape[-1]
    kept = counts[..., None]
    true = jax.nn.one_hot(classes, num_classes, dtype=p.dtype)
    shape = num, -1, num_classes
    return jnp.where(kept, p, 0).reshape(shape), jnp.where(kept, true, 0).reshape(shape)


def _ratio(one: jax.Array, other: jax.Array) -> jax.Array:
    """Return `one` / `other`, or 0 where `other` is 0."""
    return jnp.where(other > 0, one / jnp.where(other > 0, other, 1), 0)
