"""Values of fields of the config that tasks ask for."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Required(NamedTuple):
    """What a task asks of a field of the config.

    Attributes:
      holds: Whether a value of the field is what is asked for.
      reason: Why it is.
      fix: What to do otherwise, as a message ends.
    """

    holds: Callable[[Any], bool]
    reason: str
    fix: str
