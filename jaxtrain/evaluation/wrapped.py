"""Sources that are others, changed: by a corruption, or without their labels."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxtrain.data.image_source import Unreadable
from jaxtrain.data.sources import Source
from jaxtrain.evaluation.corruptions.corrupt import Corruption


@dataclass(frozen=True)
class Wrapped:
    """A source that is another; picklable, for data workers."""

    source: Source

    canvas_shape = None
    # What is done to the images takes time: several threads do so.
    in_memory = False

    @property
    def facts(self) -> Mapping[str, Any]:
        return self.source.facts

    @property
    def image_shape(self) -> tuple[int, int, int]:
        return self.source.image_shape

    @property
    def has_files(self) -> bool:
        return self.source.has_files

    def __len__(self) -> int:
        return len(self.source)

    def strata(self) -> np.ndarray:
        return self.source.strata()

    def targets(self, indices: np.ndarray) -> Any:
        return self.source.targets(indices)

    def read(
        self,
        indices: np.ndarray,
        crop_seeds: np.ndarray | None = None,
        unreadable: list[Unreadable] | None = None,
    ) -> dict[str, Any]:
        """Return `image` and `target` of some examples, as `Source` describes."""
        return self.source.read(indices, crop_seeds, unreadable)

    def fill_in(
        self,
        batch: dict[str, Any],
        indices: np.ndarray,
        unreadable: list[Unreadable],
        crop_seeds: np.ndarray | None = None,
    ) -> dict[str, Any]:
        """Put others in the place of unreadable examples, as `Source` describes."""
        return self.source.fill_in(batch, indices, unreadable, crop_seeds)


@dataclass(frozen=True)
class Corrupted(Wrapped):
    """A source whose images are corrupted, each as its number in the split says."""

    corruption: Corruption

    def read(
        self,
        indices: np.ndarray,
        crop_seeds: np.ndarray | None = None,
        unreadable: list[Unreadable] | None = None,
    ) -> dict[str, Any]:
        batch = self.source.read(indices, crop_seeds, unreadable)
        return {**batch, "image": self.corruption(batch["image"], indices)}


@dataclass(frozen=True)
class Unlabelled(Wrapped):
    """A source of images of something else, whose labels mean nothing to the task."""

    def targets(self, indices: np.ndarray) -> np.ndarray:
        return np.zeros(len(indices), np.int32)

    def read(
        self,
        indices: np.ndarray,
        crop_seeds: np.ndarray | None = None,
        unreadable: list[Unreadable] | None = None,
    ) -> dict[str, Any]:
        batch = self.source.read(indices, crop_seeds, unreadable)
        return {"image": batch["image"], "target": self.targets(indices)}
