"""Nearest neighbours for reports on embedding models."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from jaxtrain.data.batch import Batch
from jaxtrain.inference.load import load_model
from jaxtrain.plugins.report.examples import NearExample, Sample
from jaxtrain.plugins.report.pages.pictures import LARGE_SIDE, TINY, to_address
from jaxtrain.plugins.report.sample import (
    SampleLimits,
    example_names,
    over_sample,
)
from jaxtrain.trainer.setup import Setup

# Number of queries to show, and of neighbours per query.
NUM_SHOWN, NUM_NEAR = 8, 3


@dataclass(frozen=True, eq=False)
class NearestExamples:
    """Query examples with their nearest neighbours.

    Attributes:
      sample: Random sample that contains the queries and neighbours.
      index: Indices into the split, (n, 1 + K): each query, then its K nearest
        neighbours, nearest first; K is at most `NUM_NEAR`.
      label: Class of each example in `index`, (n, 1 + K).
    """

    sample: Sample
    index: np.ndarray
    label: np.ndarray


@runtime_checkable
class FindsNearest(Protocol):
    """Protocol of tasks with nearest-neighbour search."""

    def nearest(self, embedding: np.ndarray) -> np.ndarray:
        """Find the nearest neighbours of each example among the others.

        Args:
          embedding: Embedding of each example, (N, size).

        Returns:
          Indices of the neighbours, nearest first, (N, K); K is at most N - 1.
        """
        ...


def find_nearest(
    setup: Setup, workdir: Path, split: str, step: int, limits: SampleLimits
) -> NearestExamples:
    """Find nearest neighbours in a random sample of a split.

    Queries whose nearest neighbour has another class come first.

    Raises:
      UserError: This version of jaxtrain cannot read the model.
      CheckpointError: The checkpoint is damaged.
      BadNumbersError: Outputs of the model are not finite.
    """
    source, model = setup.splits.named()[split], load_model(workdir, step)
    decoder = model.decoder

    def keep(outputs: Any, batch: Batch) -> Any:
        return setup.task.target(batch), decoder.values(outputs)

    kept = over_sample(setup, model, source, limits, keep)
    kept.check(split)
    index, (label, embedding) = kept.numbers, kept.values
    embedding = embedding.astype(np.float64)
    sample = Sample(split=split, step=step, num_split=len(source), index=index)
    assert isinstance(setup.task, FindsNearest)
    near = setup.task.nearest(embedding)[:, :NUM_NEAR]
    if not near.size:
        return NearestExamples(sample, index[:0, None], label[:0, None])
    rows = np.concatenate([np.arange(len(index))[:, None], near], axis=1)
    closeness = np.sum(embedding * embedding[near[:, 0]], axis=1)
    wrong = label[near[:, 0]] != label
    # Queries whose nearest neighbour has another class come first, most similar pairs
    # first. The other queries keep their order: their key, 2, exceeds any -cosine.
    order = np.argsort(np.where(wrong, -closeness, 2), kind="stable")[:NUM_SHOWN]
    return NearestExamples(sample, index[rows[order]], label[rows[order]])


def show_nearest(setup: Setup, found: NearestExamples) -> list[list[NearExample]]:
    """Reread the images of queries and neighbours; return one list per query."""
    source, task = setup.splits.named()[found.sample.split], setup.task
    rows = []
    for index, label in zip(found.index, found.label, strict=True):
        unreadable: list[Any] = []
        read = source.read(index, unreadable=unreadable)["image"]
        images = source.pictures(read)
        bad, names = {one.index for one in unreadable}, example_names(source, index)
        rows.append(
            [
                NearExample(
                    picture=None if int(i) in bad else to_address(image, LARGE_SIDE),
                    name=name,
                    label=task.label(own),
                    same=bool(own == label[0]),
                    tiny=max(image.shape[:2]) <= TINY,
                )
                for i, own, image, name in zip(index, label, images, names, strict=True)
            ]
        )
    return rows
