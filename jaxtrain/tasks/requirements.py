"""Config values that tasks require."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Required(NamedTuple):
    """Requirement of a task on a config field.

    Attributes:
      holds: Predicate of the field's value.
      reason: Reason of the requirement.
      fix: Advice at the end of the message.
    """

    holds: Callable[[Any], bool]
    reason: str
    fix: str
