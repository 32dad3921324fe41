"""Examples for a report: predictions and augmented training images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np


class Group(NamedTuple):
    """Group of examples on the page, such as the worst mistakes.

    Attributes:
      name: Key of the group in `Predictions.choose`.
      title: Heading of the group.
      description: Sentence below the heading.
      num: Maximum number of examples.
    """

    name: str
    title: str
    description: str
    num: int


GROUPS = (
    Group(
        "worst",
        "Worst mistakes",
        "Lowest probability of the true class.",
        24,
    ),
    Group("unsure", "Least confident", "Lowest confidence, correct or not.", 12),
    Group("sure", "Most confident, and correct", "Highest confidence.", 12),
)


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Classified example with its image.

    Attributes:
      picture: Image as a `data:` URL; None if it could not be reread.
      name: File name, or "no. 3" for index 3 in the split.
      tiny: Whether the image is enlarged without smoothing.
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
    """Example with the images and texts that the task makes for it.

    Attributes:
      picture: Input image of the model, as a `data:` URL.
      name: File name, or "no. 3" for index 3 in the split.
      loss: Loss of the example.
      pictures: Title -> image drawn by the task, as a `data:` URL.
      texts: Title -> text from the task.
      tiny: Whether images are enlarged without smoothing.
    """

    picture: str
    name: str
    loss: float
    pictures: Mapping[str, str]
    texts: Mapping[str, str]
    tiny: bool


@dataclass(frozen=True, kw_only=True)
class NearExample:
    """Query image, or one of its nearest neighbours.

    Attributes:
      picture: Image as a `data:` URL; None if it could not be reread.
      name: File name, or "no. 3" for index 3 in the split.
      label: Name of the class.
      same: Whether the class equals the query's class.
      tiny: Whether the image is enlarged without smoothing.
    """

    picture: str | None
    name: str
    label: str
    same: bool
    tiny: bool


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Random sample of a split.

    Attributes:
      split: Name of the split.
      step: Step of the checkpoint.
      num_split: Number of examples in the entire split.
      index: Indices into the split, (n,).
    """

    split: str
    step: int
    num_split: int
    index: np.ndarray

    def describe(self) -> str:
        """Sentence with the size of the sample and the checkpoint's step."""
        num = len(self.index)
        images = f"all {num:,} images of the {self.split} split"
        if num < self.num_split:
            images = f"{num:,} of the {self.num_split:,} images of the {self.split} "
            images += "split, drawn at random"
        return f"Predictions for {images}, with the model of step {self.step:,}."


@dataclass(frozen=True, kw_only=True)
class Predictions(Sample):
    """Predicted classes of a random sample; all arrays are (n,).

    Attributes:
      label: True class of each example.
      predicted: Most probable class of each example.
      confidence: Probability of the predicted class.
      true_probability: Probability of the true class.
    """

    label: np.ndarray
    predicted: np.ndarray
    confidence: np.ndarray
    true_probability: np.ndarray

    @property
    def right(self) -> np.ndarray:
        return self.label == self.predicted

    def describe(self) -> str:
        """`Sample.describe`'s sentence, followed by the number of wrong predictions."""
        wrong = int((~self.right).sum())
        return f"{super().describe().removesuffix('.')}: {wrong:,} wrong."

    def choose(self) -> dict[str, list[int]]:
        """Choose the examples to show in each of `GROUPS`.

        Returns:
          Name of the group -> indices into the arrays, in display order.
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
    """Training image before and after augmentation, as `data:` URLs."""

    before: str
    after: str
    label: str
    tiny: bool


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Examples on the page of a run.

    Attributes:
      predictions: Predicted classes of a sample; None if unavailable.
      shown: Name of the group (see `GROUPS`) -> its examples.
      sample: Evaluated sample for tasks other than single-label classification; None if
        unavailable.
      drawn: Examples with the largest losses in `sample`, largest first.
      nearest: One list per query: the query, then its nearest neighbours. Only for
        embedding tasks.
      pairs: Training images before and after augmentation.
      notes: Sections that do not apply to the run, with reasons.
      failed: Sections that could not be computed, with error messages.
    """

    predictions: Predictions | None = None
    shown: dict[str, list[Shown]] = field(default_factory=dict)
    sample: Sample | None = None
    drawn: Sequence[DrawnExample] = ()
    nearest: Sequence[Sequence[NearExample]] = ()
    pairs: Sequence[Pair] = ()
    notes: Sequence[str] = ()
    failed: Sequence[str] = ()
