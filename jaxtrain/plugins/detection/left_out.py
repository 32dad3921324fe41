"""Counts, by cause, of unusable images and boxes that are left out of a data set."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from jaxtrain.config import DataConfig
from jaxtrain.data import defects
from jaxtrain.data.problems import NUM_NAMED, Problems, UnusableError
from jaxtrain.data.stores import Remark

T = TypeVar("T")

# Left, top, right and bottom of a box.
Corners = tuple[float, float, float, float]
# Tolerance in pixels for rounded boxes that exceed their image.
ROUNDING = 1.0
# Titles of the remarks on entries that are left out or clipped.
IMAGES, BOXES, CLIPPED = "images left out", "boxes left out", "boxes clipped"


class Defect(NamedTuple):
    """A defective entry; `data.max_bad_fraction` limits the fraction of defects.

    Attributes:
      text: Description of the defect.
      fix: Remedy, as an imperative.
      where: Location of the entry in the annotation file.
    """

    text: str
    fix: str
    where: str


@dataclass
class Cause:
    """Number of entries left out for one cause, and the location of the first entry."""

    first: str
    number: int = 0


@dataclass
class LeftOut:
    """Numbers of left-out and clipped images and boxes of a split.

    Attributes:
      causes: Title of a remark -> description of a cause -> `Cause`.
      defects: Title of a remark -> the first `NUM_NAMED` defects.
      num_defects: Title of a remark -> total number of defects.
    """

    causes: dict[str, dict[str, Cause]] = field(default_factory=dict)
    defects: dict[str, list[Defect]] = field(default_factory=dict)
    num_defects: dict[str, int] = field(default_factory=dict)

    def add(self, title: str, cause: str, where: str) -> None:
        """Count an entry that is not a defect, such as a box without area."""
        merged = self.causes.setdefault(title, {}).setdefault(cause, Cause(where))
        merged.number += 1

    def add_defect(self, title: str, cause: str, defect: Defect) -> None:
        """Count a defective entry, which is left out."""
        self.add(title, cause, defect.where)
        self.num_defects[title] = self.num_defects.get(title, 0) + 1
        some = self.defects.setdefault(title, [])
        if len(some) < NUM_NAMED:
            some.append(defect)

    def attempt(
        self, title: str, function: Callable[..., T], *arguments: Any, where: str
    ) -> T | None:
        """Call a function; on UnusableError, count a defect and return None."""
        try:
            return function(*arguments)
        except UnusableError as error:
            cause = error.cause or error.text
            self.add_defect(title, cause, Defect(error.text, error.fix, where))
            return None

    def clip(self, box: Corners, size: tuple[int, int], where: str) -> Corners | None:
        """Clip a box to its image; return the new corners, or None if no area is left.

        Args:
          box: Left, top, width and height in pixels.
          size: Height and width of the image.
          where: Location of the box in the annotation file.
        """
        left, top, width, height = map(float, box)
        right, bottom, (rows, columns) = left + width, top + height, size
        if width <= 0 or height <= 0:
            self.add(BOXES, "without area", where)
            return None
        merged = max(left, 0.0), max(top, 0.0), min(right, columns), min(bottom, rows)
        if merged[2] <= merged[0] or merged[3] <= merged[1]:
            self.add(BOXES, "outside their images", where)
            return None
        if max(-left, -top, right - columns, bottom - rows) > ROUNDING:
            self.add(CLIPPED, "that exceed their images by more than a pixel", where)
        return merged

    def check(
        self, title: str, num: int, config: DataConfig, problems: Problems
    ) -> None:
        """Add the defects to `problems` if their fraction exceeds `max_bad_fraction`.

        Args:
          title: `IMAGES` or `BOXES`, the entries to check.
          num: Total number of these entries in the annotation file.
          config: `data` section of the config, with `max_bad_fraction`.
          problems: Problems of the data set.
        """
        bad, most = self.num_defects.get(title, 0), config.max_bad_fraction
        if not bad or not defects.too_many(bad, num, most):
            return
        summary = (
            f"{bad:,} of {num:,} {title}, more than data.max_bad_fraction = {most}"
        )
        problems.add(
            summary, "correct these annotations, or increase data.max_bad_fraction"
        )
        for defect in self.defects[title]:
            problems.add(defect.text, defect.fix, defect.where)


def remarks_of(counts: Sequence[LeftOut]) -> tuple[Remark, ...]:
    """Merge the counts of several annotation files into one remark per title."""
    merged: dict[str, dict[str, Cause]] = {}
    for one in counts:
        for title, causes in one.causes.items():
            for name, cause in causes.items():
                known = merged.setdefault(title, {})
                known.setdefault(name, Cause(cause.first)).number += cause.number
    return tuple(
        Remark(
            title,
            "; ".join(
                f"{cause.number:,} {name}, such as {cause.first}"
                for name, cause in causes.items()
            ),
            serious=True,
        )
        for title, causes in merged.items()
    )
