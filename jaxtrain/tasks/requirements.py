"""Config values that tasks require."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Required(NamedTuple):
    """Requirement of a task on a config field.

    Attributes:
      holds: Function that returns whether a value of the field is allowed.
      reason: Reason for the requirement, for the error message.
      fix: Remedy, at the end of the error message.
    """

    holds: Callable[[Any], bool]
    reason: str
    fix: str
