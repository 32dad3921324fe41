"""Examples of a run's data: what the model says of some, and augmented ones."""

from collections.abc import Mapping, Sequence
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
class DrawnExample:
    """An example as its task draws it.

    Attributes:
      picture: Picture of what the model saw, as a data: address.
      name: Name of its file, or its number in the split.
      loss: Loss of the example by itself.
      pictures: What the task calls its pictures, and their addresses.
      texts: What the task calls its texts, and these.
      tiny: Whether its pixels are to be seen.
    """

    picture: str
    name: str
    loss: float
    pictures: Mapping[str, str]
    texts: Mapping[str, str]
    tiny: bool


@dataclass(frozen=True, kw_only=True)
class NearExample:
    """An example, or one of its nearest neighbours.

    Attributes:
      picture: Picture as a data: address; None if it could not be read again.
      name: Name of its file, or its number in the split.
      label: Its class.
      same: Whether that is the class of the example itself.
      tiny: Whether its pixels are to be seen.
    """

    picture: str | None
    name: str
    label: str
    same: bool
    tiny: bool


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Which examples of a split the model has looked at.

    Attributes:
      split: Name of the split, which has `num_split` examples.
      step: Step of the model.
      index: Numbers of the examples in the split, (n,).
    """

    split: str
    step: int
    num_split: int
    index: np.ndarray

    def describe(self) -> str:
        """Return which images it were, and which model."""
        looked = len(self.index)
        which = f"all {looked:,} images of the {self.split} split"
        if looked < self.num_split:
            which = f"{looked:,} of the {self.num_split:,} images of the {self.split} "
            which += "split, drawn at random"
        return f"Looked at: {which}, with the model of step {self.step:,}."


@dataclass(frozen=True, kw_only=True)
class Predictions(Sample):
    """What the model says of some examples of a split; arrays are (n,) each.

    Attributes:
      label: Their true classes.
      predicted: The likeliest classes.
      confidence: Probabilities of the likeliest classes.
      true_probability: Probabilities of the true classes.
    """

    label: np.ndarray
    predicted: np.ndarray
    confidence: np.ndarray
    true_probability: np.ndarray

    @property
    def right(self) -> np.ndarray:
        return self.label == self.predicted

    def describe(self) -> str:
        """Return which images were predicted, and how many of them wrongly."""
        wrong = int((~self.right).sum())
        return f"{super().describe().removesuffix('.')}: {wrong:,} wrong."

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
      predictions: What the model says of the classes of some; None if that is not
        known.
      shown: Examples of each group.
      sample: Examples that were looked at, of a task without one class an image; None
        if there are none.
      drawn: Those of them with the largest losses, the largest first.
      nearest: Rows of an example and its nearest neighbours, of a task that embeds.
      pairs: Training images before and after augmentation.
      notes: What there cannot be, and why.
      failed: What could not be had, and why.
    """

    predictions: Predictions | None = None
    shown: dict[str, list[Shown]] = field(default_factory=dict)
    sample: Sample | None = None
    drawn: Sequence[DrawnExample] = ()
    nearest: Sequence[Sequence[NearExample]] = ()
    pairs: Sequence[Pair] = ()
    notes: Sequence[str] = ()
    failed: Sequence[str] = ()
