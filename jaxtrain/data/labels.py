"""Whether a column of labels holds classes, or numbers to predict."""

import math
from collections.abc import Sequence

from jaxtrain.errors import UserError

# More different numbers than this, not all of them whole, are measurements; and so are
# fewer of them, if most are of one image each.
MOST_CLASSES = 20


def check_are_classes(source: str, labels: Sequence[str]) -> None:
    """Refuse labels that look like numbers to predict: many, and not all of them whole.

    Raises:
      UserError: they are no classes.
    """
    distinct = set(labels)
    if len(distinct) <= min(MOST_CLASSES, len(labels) // 2):
        return
    numbers = [_number(label) for label in distinct]
    if None in numbers or all(float(n or 0).is_integer() for n in numbers):
        return
    values = sorted(float(n or 0) for n in numbers)
    raise UserError(
        f"{source}: the labels look like numbers to predict, not like classes: "
        f"{len(distinct):,} different ones from {values[0]:g} to {values[-1]:g} in "
        f"{len(labels):,} rows. A recipe classifies: give a column `label` of names, "
        "such as low, middle and high by ranges of the number; to predict the number "
        "itself (regression), write a task of your own, see docs/tasks.md"
    )


def _number(text: str) -> float | None:
    """Return a finite number, with a decimal comma too, or None."""
    try:
        value = float(text.replace(",", "."))
    except ValueError:
        return None
    return value if math.isfinite(value) else None
