"""Examples of a run's data: what the model says of some, and augmented ones."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

# Groups of examples that are shown, and how many of each.
WORST, UNSURE, SURE = "worst", "unsure", "sure"
NUM_SHOWN = {WORST: 24, UNSURE: 12, SURE: 12}


@dataclass(frozen=True, kw_only=True)
class Shown:
    """An example with its picture.

    Attributes:
      picture: a data: address; None: it could not be read again.
      name: of its file, or its number in the split.
      tiny: whether its pixels are to be seen.
    """

    picture: str | None
    name: str
    true: str
    predicted: str
    confidence: float
    true_probability: float
    tiny: bool


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """What the model says of some examples of a split; (n,) each.

    Attributes:
      split: its name.
      step: of the model.
      num_split: examples of the split.
      index: numbers of those that were looked at, in the split.
      label: their true classes.
      predicted: the likeliest classes.
      confidence: the probabilities of the likeliest classes.
      true_probability: those of the true classes.
    """

    split: str
    step: int
    num_split: int
    index: np.ndarray
    label: np.ndarray
    predicted: np.ndarray
    confidence: np.ndarray
    true_probability: np.ndarray

    @property
    def right(self) -> np.ndarray:
        return self.label == self.predicted

    def choose(self) -> dict[str, list[int]]:
        """Return which are shown, by group: places in the arrays, the first first.

        The worst mistakes give the true class the lowest probability; the least sure
        ones are right or wrong by the smallest confidence.
        """
        order = {
            WORST: (np.flatnonzero(~self.right), self.true_probability),
            UNSURE: (np.arange(len(self.label)), self.confidence),
            SURE: (np.flatnonzero(self.right), -self.confidence),
        }
        return {
            group: some[np.argsort(key[some], kind="stable")][:num].tolist()
            for group, num in NUM_SHOWN.items()
            for some, key in [order[group]]
        }


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A training image as it is stored, and as a step has augmented it: addresses."""

    before: str
    after: str
    label: str
    tiny: bool


@dataclass(frozen=True, kw_only=True)
class Examples:
    """What a page shows of the data.

    Attributes:
      predictions: None: there are none.
      shown: group -> its examples.
      pairs: of training images.
      notes: what there cannot be, and why.
      failed: what could not be had, and why.
    """

    predictions: Predictions | None = None
    shown: dict[str, list[Shown]] = field(default_factory=dict)
    pairs: Sequence[Pair] = ()
    notes: Sequence[str] = ()
    failed: Sequence[str] = ()
