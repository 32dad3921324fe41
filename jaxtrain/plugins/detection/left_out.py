"""Parts of a set that cannot be used: left out, counted by cause, and named once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from jaxtrain.config import DataConfig
from jaxtrain.data import defects
from jaxtrain.data.problems import NUM_NAMED, Problems, UnusableError
from jaxtrain.data.stores import Remark

T = TypeVar("T")

# Four numbers of a box.
Corners = tuple[float, float, float, float]
# Pixels by which a box may leave its image, of rounding.
ROUNDING = 1.0
# Titles of remarks.
IMAGES, BOXES, CLIPPED = "images left out", "boxes left out", "boxes clipped"


class Defect(NamedTuple):
    """A part that counts as damage of the set.

    Attributes:
      text: Description of what is wrong.
      fix: Remedy, as an imperative.
      where: Place of the part in the list.
    """

    text: str
    fix: str
    where: str


@dataclass
class Cause:
    """Number of the parts that one cause leaves out, and the place of the first."""

    first: str
    number: int = 0


@dataclass
class LeftOut:
    """Counts of what is left out of the list of a split, or changed.

    Attributes:
      causes: Title of a remark -> cause -> count.
      defects: Title -> the first of the parts that count as damage.
      num_defects: Title -> number of all of them.
    """

    causes: dict[str, dict[str, Cause]] = field(default_factory=dict)
    defects: dict[str, list[Defect]] = field(default_factory=dict)
    num_defects: dict[str, int] = field(default_factory=dict)

    def add(self, title: str, cause: str, where: str) -> None:
        """Count a part that nobody misses, such as a box without area."""
        found = self.causes.setdefault(title, {}).setdefault(cause, Cause(where))
        found.number += 1

    def add_defect(self, title: str, cause: str, defect: Defect) -> None:
        """Count a part that is missed: `data.max_bad_fraction` bounds their number."""
        self.add(title, cause, defect.where)
        self.num_defects[title] = self.num_defects.get(title, 0) + 1
        some = self.defects.setdefault(title, [])
        if len(some) < NUM_NAMED:
            some.append(defect)

    def attempt(
        self, title: str, function: Callable[..., T], *arguments: Any, where: str
    ) -> T | None:
        """Result of a function; None, and a defect, if it raises UnusableError."""
        try:
            return function(*arguments)
        except UnusableError as error:
            cause = error.cause or error.text
            self.add_defect(title, cause, Defect(error.text, error.fix, where))
            return None

    def cut(self, box: Corners, size: tuple[int, int], where: str) -> Corners | None:
        """Corners of a box, cut at the border of its image; None if nothing is left.

        Args:
          box: Left, top, width and height in pixels.
          size: Height and width of the image.
          where: Place of the box in the list.
        """
        left, top, width, height = map(float, box)
        right, bottom, (rows, columns) = left + width, top + height, size
        if width <= 0 or height <= 0:
            self.add(BOXES, "of no area", where)
            return None
        found = max(left, 0.0), max(top, 0.0), min(right, columns), min(bottom, rows)
        if found[2] <= found[0] or found[3] <= found[1]:
            self.add(BOXES, "outside of their images", where)
            return None
        if max(-left, -top, right - columns, bottom - rows) > ROUNDING:
            self.add(CLIPPED, "that leave their images by more than a pixel", where)
        return found

    def check(
        self, title: str, num: int, config: DataConfig, problems: Problems
    ) -> None:
        """Report the defects as problems if they are too many.

        Args:
          title: Title of the remark.
          num: Number of the parts that the list has.
          config: Config of the data, with `max_bad_fraction`.
          problems: Takes the defects.
        """
        bad, most = self.num_defects.get(title, 0), config.max_bad_fraction
        if not bad or not defects.too_many(bad, num, most):
            return
        told = f"{bad:,} of {num:,} {title}, more than data.max_bad_fraction = {most}"
        problems.add(told, "mend these, or allow more")
        for defect in self.defects[title]:
            problems.add(defect.text, defect.fix, defect.where)


def remarks_of(counts: Sequence[LeftOut]) -> tuple[Remark, ...]:
    """Remarks on what is left out of several lists, one for each title."""
    found: dict[str, dict[str, Cause]] = {}
    for one in counts:
        for title, causes in one.causes.items():
            for name, cause in causes.items():
                known = found.setdefault(title, {})
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
        for title, causes in found.items()
    )
