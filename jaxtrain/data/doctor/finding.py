"""A finding: what it is, how bad, what it means and what to do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from jaxtrain.errors import counted

# A run would end, or learn nothing of use; it would suffer; it may be as it should be.
Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")

# Kind -> what it means, and what to do.
ADVICE = {
    "unreadable": "In training others of their classes take their places, evaluations "
    "leave them out: fetch them again, or take them out. More than "
    "data.max_bad_fraction of a split end a run.",
    "passed_over": "A run does not see them. Convert images of formats that are not "
    "read, move those that lie in no class into one, and leave the rest.",
    "nested": "The class of an image is the folder that its split begins with, however "
    "deep it lies: if the inner folders are the classes, list them in a csv: file.",
    "extension": "They are read by what they hold; rename them, so that nothing else "
    "trips over them.",
    "animated": "Only the first picture is used: save the one that is meant.",
    "rotated": "They are turned upright when they are read. Boxes or masks that were "
    "drawn on the stored pixels would not fit.",
    "alpha": "Transparent pixels show white, whatever colour they hide.",
    "modes": "All are turned into the channels of the run. Grey ones among colour ones "
    "may tell where an image comes from, and so its class.",
    "sizes": "The images of a batch have one size: set data.image_size in the recipe.",
    "aspect": "Of an image the centred square is used, which may show little of these: "
    "crop them, or take them out.",
    "blank": "Nothing can be learnt from them: look where they come from, and take "
    "them out.",
    "duplicates": "They count several times in what is learnt, or measured: keep one.",
    "duplicates_leak": "What a model has seen in training it may know by heart: the "
    "result looks better than it is. Keep them in one split.",
    "duplicates_conflict": "At least one label is wrong: keep one, with the label that "
    "is right.",
    "near": "The same picture saved in another way, or a series of photographs: such "
    "belong into one split together.",
    "near_leak": "What a model has seen in training it may know by heart: the result "
    "looks better than it is. Keep what belongs together in one split.",
    "near_conflict": "A label may be wrong, or the classes cannot be told apart by the "
    "image: look at them.",
    "labels_missing": "Choose a split that has labels, or mend them.",
    "one_class": "There is nothing to tell apart: training needs readable images of "
    "two classes or more.",
    "class_untrained": "A model cannot learn them, and is measured by them: give "
    "training some, or take them out.",
    "class_empty": "The model has an output for each, which is never right: take them "
    "out.",
    "class_few": "Too few to learn from, and to hold any out for validation: collect "
    "more, join classes, or take them out.",
    "imbalance": "A model is right often by naming large classes alone: look at "
    "balanced_accuracy and recall, and not at accuracy.",
    "wrong_labels": "A trained model is confident of another class. Some of these are "
    "its own mistakes: look at them before you change a label.",
    "in_sample": "The model has learnt these labels, the wrong ones too: it agrees "
    "with more of them than it should. What it still doubts is worth a look.",
}


@dataclass(frozen=True)
class Finding:
    """Something that was found.

    Attributes:
      kind: A name in `ADVICE`.
      level: How bad it is.
      title: What was found, in one line.
      groups: Rows of the scan; what belongs together is in one group.
      details: Row -> what is to say of it.
    """

    kind: str
    level: Level
    title: str
    groups: Sequence[Sequence[int]] = ()
    details: Mapping[int, str] = field(default_factory=dict)

    @property
    def advice(self) -> str:
        return ADVICE[self.kind]

    @property
    def num_examples(self) -> int:
        return sum(map(len, self.groups))

    @property
    def grouped(self) -> bool:
        """Whether several rows belong together."""
        return any(len(group) > 1 for group in self.groups)


def of_rows(
    kind: str,
    level: Level,
    title: str,
    rows: Sequence[int],
    details: Mapping[int, str] | None = None,
) -> list[Finding]:
    """Return a finding of single images, or nothing if there is none.

    `title` has {} where their number goes.
    """
    if not rows:
        return []
    title = title.format(counted(len(rows), "image"))
    groups = [[row] for row in rows]
    return [Finding(kind, level, title, groups, details or {})]
