"""Replacement of unreadable training examples by examples of the same class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxtrain.errors import UserError

if TYPE_CHECKING:
    from jaxtrain.data.defects import Unreadable
    from jaxtrain.data.image_source import Source

# Second half of the Philox key that chooses a replacement.
REPLACE_STREAM = 2**33
# Maximum number of random candidates for a replacement, and number of candidates whose
# classes are read at a time.
MAX_DRAWS = 2**14
DRAWS = 256


def read_filled(source: Source, indices: np.ndarray) -> dict[str, Any]:
    """Read examples, and replace unreadable examples (`fill_in`)."""
    unreadable: list[Unreadable] = []
    batch = source.read(indices, unreadable=unreadable)
    return fill_in(source, batch, indices, unreadable) if unreadable else batch


def fill_in(
    source: Source,
    batch: dict[str, Any],
    indices: np.ndarray,
    unreadable: list[Unreadable],
    crop_seeds: np.ndarray | None = None,
) -> dict[str, Any]:
    """Replace unreadable examples by random examples of the same class.

    The choice depends only on the indices of the unreadable examples.

    Args:
      source: Source of the batch.
      batch: Result of `source.read`; its images are replaced in place.
      indices: Indices of the examples of the batch, (n,).
      unreadable: Unreadable examples of the batch.
      crop_seeds: Seeds of random crops, as passed to `source.read`.
    """
    # Images are new arrays, decoded from files, but targets may be views of the store.
    filled = {**batch, "target": jax.tree.map(np.copy, batch["target"])}
    reasons = {bad.index: bad for bad in unreadable}
    for i in np.flatnonzero(np.isin(indices, list(reasons))):
        seeds = None if crop_seeds is None else crop_seeds[[i]]
        other = _draw_replacement(source, reasons[int(indices[i])], seeds)
        for array, one in zip(*map(jax.tree.leaves, (filled, other)), strict=True):
            array[i] = one[0]
    return filled


def _draw_replacement(
    source: Source, bad: Unreadable, crop_seeds: np.ndarray | None
) -> dict[str, Any]:
    """Return a batch of one readable example of the same class, to replace `bad`.

    Any class is allowed for unlabelled and multi-label examples.
    """
    generator = np.random.Philox(key=[bad.index, REPLACE_STREAM])
    draws = (generator.random_raw(MAX_DRAWS) % len(source)).astype(np.int64)
    group = source.subset(np.array([bad.index])).strata()
    for index in _candidates(source, group, draws):
        unreadable: list[Unreadable] = []
        other = source.read(np.array([index]), crop_seeds, unreadable)
        if not unreadable:
            return other
    raise UserError(
        f"{bad}; no other image of the class can be read as a replacement: repair the "
        "files, or remove the class from the data set"
    )


def _candidates(source: Source, group: np.ndarray, draws: np.ndarray) -> Iterator[int]:
    """Yield indices of examples in `group`: first from `draws`, then from all examples.

    Draws come first, because some stores must read the classes of all examples from
    files, which is slow. For multi-label and unlabelled examples, draws from any group
    come last.

    Args:
      source: Source of the examples.
      group: Class, (1,), or labels, (1, labels), of the unreadable example.
      draws: Random indices of examples, (n,).
    """

    def alike(strata: np.ndarray) -> np.ndarray:
        return (strata == group).reshape(len(strata), -1).all(axis=1)

    for start in range(0, MAX_DRAWS, DRAWS):
        chunk = draws[start : start + DRAWS]
        yield from chunk[alike(source.subset(chunk).strata())].tolist()
    strata = source.strata()
    yield from np.flatnonzero(alike(strata)).tolist()
    # Any example may replace an unlabelled (-1) or a multi-label example.
    if strata.ndim > 1 or (group < 0).any():
        yield from draws.tolist()
