"""What the members of an ensemble put out: their mean, and how far they disagree."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.dtypes import widen

# Among the sums of an evaluation, what those of an ensemble have beside those of the
# mean: the sums of each member, and how far they disagree.
MEMBERS = "members"
# How the metrics of each member begin, lists of a number for each.
OF_MEMBERS = "member_"


def mean_softmax(outputs: jax.Array) -> jax.Array:
    """Return the logarithm of the mean probabilities of classes.

    They are logits of the mean: a softmax returns the mean probabilities
    (Lakshminarayanan et al. 2017, arXiv:1612.01474).

    Args:
      outputs: Logits of each member, (members, ..., classes).

    Returns:
      (..., classes), in at least float32.
    """
    return _log_mean_exp(_log_softmax(outputs))


def mean_sigmoid(outputs: jax.Array) -> jax.Array:
    """Return the logits of the mean probabilities of labels.

    Args:
      outputs: Logits of each member, (members, ...).

    Returns:
      (...), in at least float32.
    """
    outputs = widen(outputs)
    yes, no = (_log_mean_exp(_log_sigmoid(x)) for x in (outputs, -outputs))
    return yes - no


def _log_softmax(outputs: jax.Array) -> jax.Array:
    shifted = widen(outputs) - jnp.max(widen(outputs), -1, keepdims=True)
    return shifted - jnp.log(jnp.sum(jnp.exp(shifted), -1, keepdims=True))


def _log_sigmoid(x: jax.Array) -> jax.Array:
    return jnp.minimum(x, 0) - jnp.log(1 + jnp.exp(-jnp.abs(x)))


def _log_mean_exp(x: jax.Array) -> jax.Array:
    """Return the logarithm of the mean over the first dim of exp(x)."""
    largest = jnp.max(x, 0)
    return largest + jnp.log(jnp.mean(jnp.exp(x - largest), 0))


def class_disagreement(outputs: jax.Array, weights: jax.Array) -> dict[str, jax.Array]:
    """Return how far members disagree on classes.

    Args:
      outputs: Logits of each member, (members, ..., classes).
      weights: Weights of what has a class, such as a mask, (...).

    Returns:
      Total and number, float (2,) each, of `disagreement`, the share of the pairs of
      members that rank another class first, and of `mutual_information`, the entropy of
      the mean less the mean entropy, in nats (Depeweg et al. 2018, arXiv:1710.07283).
    """
    num, classes = len(outputs), outputs.shape[-1]
    votes = jax.nn.one_hot(jnp.argmax(outputs, -1), classes, dtype=jnp.float32).sum(0)
    differing = (num * num - jnp.sum(votes * votes, -1)) / (num * (num - 1))
    log_each, log_mean = _log_softmax(outputs), mean_softmax(outputs)
    information = _entropy(log_mean) - jnp.mean(_entropy(log_each), 0)
    # By rounding it may be below 0.
    return _totals(differing, jnp.maximum(information, 0), weights)


def label_disagreement(outputs: jax.Array, weights: jax.Array) -> dict[str, jax.Array]:
    """Return how far members disagree on labels, at a probability of a half.

    Args:
      outputs: Logits of each member, (members, B, labels).
      weights: Weights of the labels, such as a mask, (B, labels).

    Returns:
      What `class_disagreement` does.
    """
    two = jnp.stack([outputs, jnp.zeros_like(outputs)], -1)
    return class_disagreement(two, weights)


def _entropy(log_probabilities: jax.Array) -> jax.Array:
    return -jnp.sum(jnp.exp(log_probabilities) * log_probabilities, -1)


def _totals(
    disagreement: jax.Array, information: jax.Array, weights: jax.Array
) -> dict[str, jax.Array]:
    found = {"disagreement": disagreement, "mutual_information": information}
    return {name: total_and_number(x, weights) for name, x in found.items()}


def total_and_number(x: jax.Array, weights: jax.Array) -> jax.Array:
    """Return the weighted sum and the sum of weights, (2,)."""
    weights = weights.astype(x.dtype)
    # What does not count may not be finite.
    counted = jnp.where(weights > 0, x, 0)
    return jnp.stack([jnp.sum(counted * weights), jnp.sum(weights)])


def member_sums(
    task: Any, outputs: Any, target: Any, mask: jax.Array
) -> dict[str, Any]:
    """Return the sums of an ensemble over a batch beside those of its mean.

    Args:
      task: Task of the members.
      outputs: Outputs of each member, (members, B, ...) each.
      target: What `Task.target` returned.
      mask: (B,) of 0 and 1; 0 marks padding.

    Returns:
      Under `MEMBERS`: `each`, the sums of each member of the loss and of the main
      metric, (members, ...), and those of the task's `disagreement`.
    """
    wanted = {"loss", "num_examples", task.found_names().get(task.best_metric)}
    num = len(jax.tree.leaves(outputs)[0])
    parts = [
        task.sums(jax.tree.map(lambda x, i=i: x[i], outputs), target, mask)
        for i in range(num)
    ]
    each = [{name: x for name, x in one.items() if name in wanted} for one in parts]
    return {
        MEMBERS: {
            "each": jax.tree.map(lambda *xs: jnp.stack(xs), *each),
            "disagreement": task.disagreement(outputs, target, mask),
        }
    }


def member_values(task: Any, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics of an ensemble beside those of its mean.

    Args:
      task: Task of the members.
      found: What `member_sums` has under `MEMBERS`, of all batches, on the host.

    Returns:
      The means of the task's `disagreement`, None where nothing counts, and
      `member_loss` and the like: lists of a number for each member.
    """
    each = found["each"]
    values = [
        task.values(jax.tree.map(lambda x, i=i: x[i], each))
        for i in range(len(each["num_examples"]))
    ]
    told: dict[str, Any] = {
        name: float(total / number) if number else None
        for name, (total, number) in found["disagreement"].items()
    }
    for name in ("loss", task.best_metric):
        of_members = [one[name] for one in values if np.ndim(one.get(name, [])) == 0]
        if len(of_members) == len(values):
            told[f"{OF_MEMBERS}{name}"] = of_members
    return told
