"""Examples of a run's data: what the model says of some, and augmented ones."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np


class Group(NamedTuple):
    """A group of examples that are shown, and how many at most."""

    name: str
    title: str
    told: str
    num: int


GROUPS = (
    Group(
        "worst",
        "Worst mistakes",
        "The true class was given the lowest probability.",
        24,
    ),
    Group("unsure", "Least sure", "Right or wrong: the smallest confidence.", 12),
    Group("sure", "Most sure, and right", "The largest confidence.", 12),
)


@dataclass(frozen=True, kw_only=True)
class Shown:
    """An example with its picture.

    Attributes:
      picture: Picture as a data: address; None if it could not be read again.
      name: Name of its file, or its number in the split.
      tiny: Whether its pixels are to be seen.
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
    """What the model says of some examples of a split; arrays are (n,) each.

    Attributes:
      split: Name of the split, which has `num_split` examples.
      step: Step of the model.
      index: Numbers of the examples in the split.
      label: Their true classes.
      predicted: The likeliest classes.
      confidence: Probabilities of the likeliest classes.
      true_probability: Probabilities of the true classes.
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

    def describe(self) -> str:
        """Return which images were predicted, and how many of them wrongly."""
        looked, wrong = len(self.label), int((~self.right).sum())
        which = f"all {looked:,} images of the {self.split} split"
        if looked < self.num_split:
            which = f"{looked:,} of the {self.num_split:,} images of the {self.split} "
            which += "split, drawn at random"
        model = f"with the model of step {self.step:,}"
        return f"Looked at: {which}, {model}: {wrong:,} wrong."

    def choose(self) -> dict[str, list[int]]:
        """Return which are shown, by group: places in the arrays, the first first.

        The worst mistakes give the true class the lowest probability; the least sure
        ones are right or wrong by the smallest confidence.
        """
        order = {
            "worst": (np.flatnonzero(~self.right), self.true_probability),
            "unsure": (np.arange(len(self.label)), self.confidence),
            "sure": (np.flatnonzero(self.right), -self.confidence),
        }
        found = {}
        for group in GROUPS:
            some, key = order[group.name]
            first = np.argsort(key[some], kind="stable")[: group.num]
            found[group.name] = some[first].tolist()
        return found


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
      predictions: What the model says of some; None if that is not known.
      shown: Examples of each group.
      pairs: Training images before and after augmentation.
      notes: What there cannot be, and why.
      failed: What could not be had, and why.
    """

    predictions: Predictions | None = None
    shown: dict[str, list[Shown]] = field(default_factory=dict)
    pairs: Sequence[Pair] = ()
    notes: Sequence[str] = ()
    failed: Sequence[str] = ()
