"""Other examples in the place of those that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxtrain.errors import UserError

if TYPE_CHECKING:
    from jaxtrain.data.defects import Unreadable
    from jaxtrain.data.image_source import Source

# Second half of the key that chooses what takes the place of an unreadable image.
REPLACE_STREAM = 2**33
# Examples drawn in search of another of the same class, and how many at a time.
MAX_DRAWS = 2**14
DRAWS = 256


def read_filled(source: Source, indices: np.ndarray) -> dict[str, Any]:
    """Read examples, with others in the place of unreadable ones."""
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
    """Put other examples, of the same classes, in the place of unreadable ones.

    Which ones is a function of the numbers of the unreadable ones alone.

    Args:
      batch: what `read` returned; its images are replaced in place.
      indices: of its examples, (n,).
      unreadable: those of them that could not be read.
      crop_seeds: as `read` takes them.
    """
    # The images are the source's own arrays, as it has decoded files.
    filled = {**batch, "target": jax.tree.map(np.copy, batch["target"])}
    reasons = {bad.index: bad for bad in unreadable}
    for i in np.flatnonzero(np.isin(indices, list(reasons))):
        seeds = None if crop_seeds is None else crop_seeds[[i]]
        other = _another(source, reasons[int(indices[i])], seeds)
        for array, one in zip(*map(jax.tree.leaves, (filled, other)), strict=True):
            array[i] = one[0]
    return filled


def _another(
    source: Source, bad: Unreadable, crop_seeds: np.ndarray | None
) -> dict[str, Any]:
    """Return a batch of one readable example, of the same group if there is one."""
    generator = np.random.Philox(key=[bad.index, REPLACE_STREAM])
    draws = (generator.random_raw(MAX_DRAWS) % len(source)).astype(np.int64)
    group = source.subset(np.array([bad.index])).strata()
    for index in _of_group(source, group, draws):
        unreadable: list[Unreadable] = []
        other = source.read(np.array([index]), crop_seeds, unreadable)
        if not unreadable:
            return other
    raise UserError(
        f"{bad}; and no other image of its class can be read in its place: mend "
        "the files, or take the class out of the set"
    )


def _of_group(source: Source, group: np.ndarray, draws: np.ndarray) -> Iterator[int]:
    """Yield examples of a group: those among the draws, then all.

    To look at the groups of all may take long, where they lie in the files. Where
    examples are in several groups, any example follows those of the same ones.
    """

    def alike(strata: np.ndarray) -> np.ndarray:
        return (strata == group).reshape(len(strata), -1).all(axis=1)

    for start in range(0, MAX_DRAWS, DRAWS):
        some = draws[start : start + DRAWS]
        yield from some[alike(source.subset(some).strata())].tolist()
    strata = source.strata()
    yield from np.flatnonzero(alike(strata)).tolist()
    # Of an example without a label (-1) any may take the place.
    if strata.ndim > 1 or (group < 0).any():
        yield from draws.tolist()
