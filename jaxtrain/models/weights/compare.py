"""Arrays of a file against those that a model has."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Shapes = Mapping[str, tuple[int, ...]]
# Names of each kind that a message lists.
NUM_LISTED = 3


@dataclass(frozen=True)
class Differences:
    """What does not fit, by the names in the file.

    Arrays of the model alone, of the file alone, and of both with both shapes.
    """

    missing: tuple[str, ...]
    unused: tuple[str, ...]
    misshapen: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.missing) + len(self.unused) + len(self.misshapen)

    def __str__(self) -> str:
        kinds = {
            "missing": self.missing,
            "unknown to the model": self.unused,
            "of another shape": self.misshapen,
        }
        return ", ".join(
            f"{len(names)} {kind} ({_first(names)})"
            for kind, names in kinds.items()
            if names
        )


def compare(
    stored: Shapes, wanted: Shapes, may_differ: Callable[[str], bool]
) -> Differences:
    """Return what does not fit.

    Args:
      stored: arrays of the file.
      wanted: those of the model, by the names of the file.
      may_differ: says whether an array may be missing in either.
    """
    return Differences(
        tuple(n for n in wanted if n not in stored and not may_differ(n)),
        tuple(n for n in stored if n not in wanted and not may_differ(n)),
        tuple(
            f"{n}: {list(stored[n])}, expected {list(wanted[n])}"
            for n in wanted
            if n in stored and stored[n] != wanted[n]
        ),
    )


def _first(names: tuple[str, ...]) -> str:
    more = ", ..." if len(names) > NUM_LISTED else ""
    return ", ".join(names[:NUM_LISTED]) + more
