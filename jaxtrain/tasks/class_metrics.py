"""Classification metrics: sums on the device, values on the host.

To add a metric, write its functions, and add a row to `METRICS`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.tasks.metrics import Metric


def mean_known(values: jax.Array, known: jax.Array | None) -> jax.Array:
    """Mean over the examples with a known class, float32 (); 0 if there are none.

    Args:
      values: Value of each example, (B,).
      known: Whether the class of each example is known, (B,). None if all are known.
    """
    if known is None:
        return jnp.mean(values, dtype=jnp.float32)
    # Stacked, so that the two sums need a single all-reduce.
    total, num = jnp.sum(jnp.stack([values * known, known]), axis=1, dtype=jnp.float32)
    return total / jnp.maximum(num, 1)


def top1_hits(logits: jax.Array, labels: jax.Array, mask: jax.Array) -> jax.Array:
    """Number of examples whose predicted class is correct, int32 ()."""
    return jnp.sum(_top5(logits, labels)[:, 0] * mask, dtype=jnp.int32)


def top5_hits(logits: jax.Array, labels: jax.Array, mask: jax.Array) -> jax.Array:
    """Number of examples with the true class in the top 5, int32 ()."""
    hits = jnp.max(_top5(logits, labels), axis=-1)
    return jnp.sum(hits * mask, dtype=jnp.int32)


def _top5(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """One-hot rank of the true class, int32 (batch, min(5, classes)).

    All values are 0 if the class is not in the top 5.
    """
    _, top = jax.lax.top_k(logits, min(5, logits.shape[-1]))
    return (top == labels[:, None]).astype(jnp.int32)


def class_counts(logits: jax.Array, labels: jax.Array, mask: jax.Array) -> jax.Array:
    """Count correct predictions, examples and predictions per class, (3, classes)."""
    true, predicted = _one_hots(logits, labels, mask)
    return jnp.stack([jnp.sum(x, 0) for x in (true * predicted, true, predicted)])


def confusion(logits: jax.Array, labels: jax.Array, mask: jax.Array) -> jax.Array:
    """Confusion matrix: true classes (rows) by predicted classes (columns)."""
    true, predicted = _one_hots(logits, labels, mask)
    return jnp.einsum("bt,bp->tp", true, predicted)


def _one_hots(
    logits: jax.Array, labels: jax.Array, mask: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """One-hot true and predicted classes, int32 (batch, classes), 0 if masked.

    With dense arrays, each device sums over its local examples; a scatter would require
    an all-gather of the examples.
    """
    num, mask = logits.shape[-1], mask[:, None]
    true = jax.nn.one_hot(labels, num, dtype=jnp.int32)
    predicted = jax.nn.one_hot(jnp.argmax(logits, -1), num, dtype=jnp.int32)
    return true * mask, predicted * mask


def recall(counts: np.ndarray, num_examples: int) -> list[float | None]:
    """Recall of each class; None for a class without examples."""
    hits, examples, _ = counts.tolist()
    return [h / n if n else None for h, n in zip(hits, examples, strict=True)]


def precision(counts: np.ndarray, num_examples: int) -> list[float | None]:
    """Precision of each class; None for a class without predictions."""
    hits, _, predictions = counts.tolist()
    return [h / n if n else None for h, n in zip(hits, predictions, strict=True)]


def balanced_accuracy(counts: np.ndarray, num_examples: int) -> float:
    """Mean recall over classes with examples."""
    return float(np.mean([r for r in recall(counts, num_examples) if r is not None]))


def macro_f1(counts: np.ndarray, num_examples: int) -> float:
    """Mean F1 score over classes with examples or predictions.

    F1 is the harmonic mean of precision and recall; 0 without correct predictions.
    """
    hits, examples, predictions = counts.tolist()
    rows = zip(hits, examples, predictions, strict=True)
    return float(np.mean([2 * h / (n + p) for h, n, p in rows if n + p]))


def as_list(total: np.ndarray, num_examples: int) -> list[Any]:
    """Return the sum of a metric over all examples, as nested lists."""
    return total.tolist()


METRICS = {
    "accuracy": Metric(top1_hits, better="higher"),
    "top5_accuracy": Metric(
        top5_hits, better="higher", title="top-5 accuracy", min_classes=6
    ),
    "balanced_accuracy": Metric(class_counts, balanced_accuracy, "higher"),
    "macro_f1": Metric(class_counts, macro_f1, "higher", title="macro F1"),
    "recall": Metric(class_counts, recall),
    "precision": Metric(class_counts, precision),
    "confusion_matrix": Metric(confusion, as_list),
}
