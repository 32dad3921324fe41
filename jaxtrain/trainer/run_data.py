"""Data of a run: splits, order of examples, pixel statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jaxtrain.data import loader
from jaxtrain.data.datasets import Dataset, make_datasets, should_cache
from jaxtrain.data.image_statistics import mean_and_std
from jaxtrain.data.order import DataOrder

if TYPE_CHECKING:
    from jaxtrain.trainer.setup import Setup


@dataclass(frozen=True, kw_only=True)
class RunData:
    """Data of a run, cached on the devices or streamed.

    Attributes:
      train_set: Training split.
      validation_set: Validation split; None if the run has none.
      test_set: Test split.
      order: Order of the training examples.
      mean: Mean of each channel, in 0..1.
      std: Standard deviation of each channel, in 0..1.
    """

    train_set: Dataset
    validation_set: Dataset | None
    test_set: Dataset
    order: DataOrder
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def datasets(self) -> list[Dataset]:
        """Training split, validation split (if the run has one) and test split."""
        parts = (self.train_set, self.validation_set, self.test_set)
        return [part for part in parts if part is not None]


def load_data(setup: Setup) -> RunData:
    """Cache the splits of a run on the devices, or open them for streaming."""
    config, splits = setup.config, setup.splits
    cache, most_bad = should_cache(config.data, splits), config.data.max_bad_fraction
    train, validation, test = make_datasets(splits, setup.mesh, cache, most_bad)
    mean, std = mean_and_std(config.data, splits, train.source)
    return RunData(
        train_set=train,
        validation_set=validation,
        test_set=test,
        order=loader.make_order(config.data, train.source, config.seed),
        mean=mean,
        std=std,
    )
