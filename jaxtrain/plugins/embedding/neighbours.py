"""Nearest neighbours among embeddings, on the host, each example left out of its own.

Exact, in blocks of rows: all against all of 10,000 examples takes seconds, and no more
than `BLOCK` similarities are in memory. Of equal neighbours the first is the nearest.
"""

from typing import NamedTuple

import numpy as np

# Similarities of a block.
BLOCK = 2**24
# Neighbours that vote for a class.
VOTERS = 5
# Neighbours that are looked for.
MOST = 10


class Neighbours(NamedTuple):
    """What is found of N examples; arrays have a row for each.

    Attributes:
      nearest: Numbers of the nearest others, the nearest first, (N, K); K is `MOST`, or
        the number of others.
      label: Classes of these, (N, K).
      own: Class of the example, (N,).
      answerable: Whether another example has its class, bool (N,).
      loss: Supervised contrastive loss among all examples, (N,); 0 where no other has
        the class.
    """

    nearest: np.ndarray
    label: np.ndarray
    own: np.ndarray
    answerable: np.ndarray
    loss: np.ndarray


def find_neighbours(
    embedding: np.ndarray, label: np.ndarray, *, temperature: float
) -> Neighbours:
    """Compare each example with all others, by the cosine.

    Args:
      embedding: Embeddings of length 1, (N, size).
      label: Class of each example, (N,).
      temperature: Divisor of the cosines in the loss.
    """
    num = len(embedding)
    most = max(0, min(MOST, num - 1))
    embedding = embedding.astype(np.float64)
    _, place, sizes = np.unique(label, return_inverse=True, return_counts=True)
    sums = np.zeros((len(sizes), embedding.shape[1]))
    np.add.at(sums, place, embedding)
    # Of an example with the others of its class.
    alike = np.sum(embedding * (sums[place] - embedding), axis=1)
    num_alike = sizes[place] - 1
    index, logs = np.zeros((num, most), np.int64), np.zeros(num)
    rows = max(1, BLOCK // max(1, num))
    for start in range(0, num if most else 0, rows):
        part = slice(start, start + rows)
        similar = embedding[part] @ embedding.T
        itself = np.arange(len(similar))
        similar[itself, start + itself] = -np.inf
        # The roundings of a product depend on the place of a column: rounded further,
        # equal embeddings are equally near.
        index[part] = _nearest(similar.astype(np.float32), most)
        # Cosines are at most 1, up to rounding: nothing overflows.
        similar -= 1
        similar /= temperature
        logs[part] = np.log(np.exp(similar, out=similar).sum(axis=1))
    mean = alike / np.maximum(num_alike, 1)
    loss = logs + 1 / temperature - mean / temperature
    return Neighbours(
        nearest=index,
        label=label[index],
        own=label,
        answerable=num_alike > 0,
        loss=np.where(num_alike > 0, loss, 0),
    )


def _nearest(similar: np.ndarray, most: int) -> np.ndarray:
    """Return the numbers of the largest of each row, the largest first, (n, most).

    Of equal ones the first numbers are taken, and come first.
    """
    similar = np.where(np.isnan(similar), -np.inf, similar)
    least = np.partition(similar, -most, axis=1)[:, -most, None]
    more, equal = similar > least, similar == least
    rest = most - more.sum(axis=1, keepdims=True)
    chosen = more | (equal & (np.cumsum(equal, axis=1, dtype=np.int32) <= rest))
    found = np.nonzero(chosen)[1].reshape(-1, most)
    values = np.take_along_axis(similar, found, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    return np.take_along_axis(found, order, axis=1)


def recall_at(found: Neighbours, k: int) -> float | None:
    """Return the part of the examples that have one of their class among the first k.

    Those whose class nobody else has are left out. None if there are no others.
    """
    hits = (found.label[:, :k] == found.own[:, None]).any(axis=1)
    return _mean(hits, found)


def knn_accuracy(found: Neighbours) -> float | None:
    """Return the part of the examples whose class most of their neighbours have.

    Of classes with as many votes the one with the nearest neighbour wins. Examples
    whose class nobody else has are left out. None if there are no others.
    """
    voters = found.label[:, :VOTERS]
    if not voters.shape[1]:
        return None
    votes = (voters[:, :, None] == voters[:, None, :]).sum(axis=2)
    # The first of the largest: that of the nearest.
    elected = voters[np.arange(len(voters)), votes.argmax(axis=1)]
    return _mean(elected == found.own, found)


def mean_loss(found: Neighbours) -> float | None:
    """Return the mean contrastive loss of examples whose class others have, too."""
    return _mean(found.loss, found)


def _mean(values: np.ndarray, found: Neighbours) -> float | None:
    counted = values[found.answerable]
    return float(counted.mean(dtype=np.float64)) if len(counted) else None
