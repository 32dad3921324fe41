"""Evaluation metrics: sums on the device, means on the host."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.dtypes import wide
from jaxtrain.tasks.losses import cross_entropy

Sums = dict[str, jax.Array]


def zero_sums(dtype: Any) -> dict[str, np.ndarray]:
    """Return the sums over no examples; `dtype` is that of the logits."""
    return {
        "loss": np.zeros((), wide(dtype)),
        "accuracy": np.zeros((), np.int32),
        "top5_accuracy": np.zeros((), np.int32),
        "num_examples": np.zeros((), np.int32),
    }


def batch_sums(logits: jax.Array, labels: jax.Array, mask: jax.Array) -> Sums:
    """Sum the metrics over the examples whose mask is 1.

    Args:
      logits: (batch, classes).
      labels: (batch,) integers.
      mask: (batch,) of 0 and 1; 0 marks padding.

    Returns:
      The sum of the loss (at least float32) and the counts (int32, exact) of
      examples, of true classes ranked first, and of true classes among the first five.
    """
    mask = mask.astype(jnp.int32)
    loss = jnp.where(mask > 0, cross_entropy(logits, labels), 0.0)
    _, top = jax.lax.top_k(logits, min(5, logits.shape[-1]))
    hits = (top == labels[:, None]).astype(jnp.int32)
    return {
        "loss": jnp.sum(loss),
        "accuracy": jnp.sum(hits[:, 0] * mask, dtype=jnp.int32),
        "top5_accuracy": jnp.sum(jnp.max(hits, axis=-1) * mask, dtype=jnp.int32),
        "num_examples": jnp.sum(mask, dtype=jnp.int32),
    }


def means(sums: dict[str, np.ndarray]) -> dict[str, float | int]:
    """Divide the sums by the number of examples."""
    n = int(sums["num_examples"])
    result: dict[str, float | int] = {
        name: float(value) / n for name, value in sums.items() if name != "num_examples"
    }
    return {**result, "num_examples": n}


def better(metric: str, new: float, old: float | None) -> bool:
    """Tell whether `new` improves on `old`; NaN never does."""
    if old is None:
        return new == new
    return new < old if metric == "loss" else new > old
