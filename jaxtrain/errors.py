"""Errors that end a run with a message and an exit code."""

import difflib
from collections.abc import Iterable, Sequence

# Exit code of a run that failed for an external reason: the same command resumes it.
START_AGAIN = 75


class UserError(ValueError):
    """Invalid user input; the message names the value and the fix (exit 2)."""


class UntrustedError(UserError):
    """A saved run or model requires custom code that is not trusted (exit 2)."""


class OtherRunError(UserError):
    """A workdir contains files of several runs (exit 2)."""


class BadNumbersError(RuntimeError):
    """Loss, gradients, train state or outputs are not finite (exit 5)."""


class CheckpointError(RuntimeError):
    """A checkpoint could not be written or restored (exit 1)."""


class DamagedError(CheckpointError):
    """A checkpoint is damaged; an older checkpoint may be intact."""


class IncompleteError(RuntimeError):
    """The command failed for some of its inputs (exit 1)."""


class ExportError(RuntimeError):
    """An exported file does not compute the model's outputs (exit 1)."""


class StartAgainError(RuntimeError):
    """The run lost a resource that a restart recovers (exit 75)."""


class OutputError(RuntimeError):
    """The result could not be written to standard output (exit 1)."""


class Interrupted(BaseException):
    """A signal stopped the run (exit 128 + the signal's number).

    Not an `Exception`: it may be raised anywhere, and handlers of exceptions, such as
    around file reads, must not catch it.

    Args:
      signum: Number of the signal.
      message: What was saved, and how to resume.
    """

    def __init__(self, signum: int, message: str):
        super().__init__(message)
        self.signum = signum


def nearest(
    name: str, known: Iterable[str], text: str = "; perhaps you meant {}", num: int = 1
) -> str:
    """Return a hint with similar names, for a message about an unknown name.

    Args:
      name: The unknown name.
      known: All valid names.
      text: Template of the hint; {} stands for the names.
      num: Maximum number of names.

    Returns:
      The hint, or an empty string if no known name is similar.
    """
    near = difflib.get_close_matches(name, list(known), n=num)
    return text.format(" or ".join(near)) if near else ""


def hint(name: str, known: list[str]) -> str:
    """Return a hint with the most similar name, or else with all known names."""
    expected = f"expected {', '.join(known) or 'none'}"
    return nearest(name, known, "did you mean {!r}?") or expected


def first_of(names: Sequence[object], num: int) -> str:
    """Format the first `num` names, and the number of further names."""
    more = f" and {len(names) - num:,} more" if len(names) > num else ""
    return ", ".join(map(str, names[:num])) + more


def counted(num: int, noun: str, plural: str | None = None) -> str:
    """Return a number and its noun, such as `1 step` or `1,200 steps`."""
    return f"{num:,} {noun if num == 1 else plural or noun + 's'}"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of JAX or Python reports a lack of memory."""
    # Compare names of classes, because importing JAX takes a second.
    is_of_jax = any(kind.__name__ == "JaxRuntimeError" for kind in type(error).__mro__)
    is_exhausted = is_of_jax and "RESOURCE_EXHAUSTED" in str(error)
    return is_exhausted or isinstance(error, MemoryError)
