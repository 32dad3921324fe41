"""Leave-one-out nearest neighbours among embeddings, on the host.

The positives of an example are the other examples of its class.

The search is exact, and takes seconds for 10,000 examples. At most `BLOCK` similarities
are in memory. Ties are resolved in favour of the lower index.
"""

from typing import NamedTuple

import numpy as np

# Maximum number of cosine similarities in a block.
BLOCK = 2**24
# Number of neighbours that vote for a class.
VOTERS = 5
# Maximum number of neighbours per example.
MOST = 10


class Neighbours(NamedTuple):
    """Nearest neighbours of N examples.

    Attributes:
      nearest: Indices of the nearest other examples, nearest first, (N, K); K is at
        most `MOST`.
      label: Classes of the neighbours, (N, K).
      own: Class of each example, (N,).
      answerable: Whether another example has the same class, bool (N,).
      loss: Supervised contrastive loss of each example, over all other examples, (N,);
        0 without positives.
    """

    nearest: np.ndarray
    label: np.ndarray
    own: np.ndarray
    answerable: np.ndarray
    loss: np.ndarray


def find_neighbours(
    embedding: np.ndarray, label: np.ndarray, *, temperature: float
) -> Neighbours:
    """Find the nearest neighbours of each example by cosine similarity.

    Args:
      embedding: Embeddings of norm 1, (N, size).
      label: Class of each example, (N,).
      temperature: Divisor of the cosines in the loss.
    """
    num = len(embedding)
    most = max(0, min(MOST, num - 1))
    embedding = embedding.astype(np.float64)
    _, place, sizes = np.unique(label, return_inverse=True, return_counts=True)
    sums = np.zeros((len(sizes), embedding.shape[1]))
    np.add.at(sums, place, embedding)
    # Sum of the similarities of an example to its positives.
    alike = np.sum(embedding * (sums[place] - embedding), axis=1)
    num_alike = sizes[place] - 1
    index, logs = np.zeros((num, most), np.int64), np.zeros(num)
    rows = max(1, BLOCK // max(1, num))
    for start in range(0, num if most else 0, rows):
        part = slice(start, start + rows)
        similar = embedding[part] @ embedding.T
        itself = np.arange(len(similar))
        similar[itself, start + itself] = -np.inf
        # Rounding errors of the matrix product differ between columns. After rounding
        # to float32, equal embeddings have equal similarities.
        index[part] = _nearest(similar.astype(np.float32), most)
        # Subtract the largest possible cosine, so that `exp` does not overflow.
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
    """Return the indices of the `most` largest values per row, largest first.

    Ties are resolved in favour of the lower index.
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
    """Return the fraction of examples with a positive among the first k neighbours.

    Examples without positives are excluded; None if all examples are excluded.
    """
    hits = (found.label[:, :k] == found.own[:, None]).any(axis=1)
    return _mean(hits, found)


def knn_accuracy(found: Neighbours) -> float | None:
    """Return the accuracy of a majority vote of the `VOTERS` nearest neighbours.

    Ties are resolved in favour of the nearest neighbour's class. Examples without
    positives are excluded; None if all examples are excluded.
    """
    voters = found.label[:, :VOTERS]
    if not voters.shape[1]:
        return None
    votes = (voters[:, :, None] == voters[:, None, :]).sum(axis=2)
    # argmax takes the first maximum: the class of the nearest neighbour.
    elected = voters[np.arange(len(voters)), votes.argmax(axis=1)]
    return _mean(elected == found.own, found)


def mean_loss(found: Neighbours) -> float | None:
    """Return the mean contrastive loss of the examples with positives, or None."""
    return _mean(found.loss, found)


def _mean(values: np.ndarray, found: Neighbours) -> float | None:
    counted = values[found.answerable]
    return float(counted.mean(dtype=np.float64)) if len(counted) else None
