"""Fields of the config that tasks refuse, or ask values of."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

# Fields of the config without a meaning for most tasks -> the reason.
UNUSUAL: Mapping[str, str] = MappingProxyType(
    {
        "data.hold_out": "it cannot tell classes that it was not trained on",
        "data.sliding_size": "it has no classes of pixels for windows of an image",
        "train.tta": "it has no classes whose probabilities could be averaged",
    }
)


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
