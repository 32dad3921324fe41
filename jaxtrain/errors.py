"""Errors that end a run with one message and an exit code of their own."""

import difflib
from collections.abc import Iterable, Sequence

# Exit code of a run that ended by no fault of its own: the same command goes on.
START_AGAIN = 75


class UserError(ValueError):
    """The user's input is wrong: the message names the value and the fix (exit 2)."""


class UntrustedError(UserError):
    """A saved run or model names code that nobody has allowed to run (exit 2)."""


class OtherRunError(UserError):
    """Files of several runs lie in one workdir (exit 2)."""


class BadNumbersError(RuntimeError):
    """Loss or gradients stayed non-finite beyond the limit (exit 5)."""


class CheckpointError(RuntimeError):
    """A checkpoint could not be written or read back (exit 1)."""


class DamagedError(CheckpointError):
    """A checkpoint cannot be read, or is not what was saved; an older one may be."""


class IncompleteError(RuntimeError):
    """It was done, but for a part that could not be (exit 1)."""


class ExportError(RuntimeError):
    """An exported file does not compute what the model does (exit 1)."""


class StartAgainError(RuntimeError):
    """Something was lost that a new start brings back (exit 75)."""


class OutputError(RuntimeError):
    """Standard output, where the result goes, cannot be written (exit 1)."""


class Interrupted(BaseException):
    """A signal asked the run to stop (exit 128 + the signal's number).

    No `Exception`: it may be raised anywhere, and code that takes those for its own,
    such as one that reads a file, must let it through.

    Args:
      signum: the signal's number.
      message: what was saved and how to go on.
    """

    def __init__(self, signum: int, message: str):
        super().__init__(message)
        self.signum = signum


def nearest(
    name: str, known: Iterable[str], text: str = "; perhaps you meant {}", num: int = 1
) -> str:
    """Return the end of a message on an unknown name: what may be meant.

    Args:
      text: words the hint; {} stands for the names.

    Returns:
      The hint, or nothing if no known name is near.
    """
    near = difflib.get_close_matches(name, list(known), n=num)
    return text.format(" or ".join(near)) if near else ""


def hint(name: str, known: list[str]) -> str:
    """Return the name that is meant, or all there are."""
    there_is = f"there is {', '.join(known) or 'none'}"
    return nearest(name, known, "did you mean {!r}?") or there_is


def first_of(names: Sequence[object], num: int) -> str:
    """Return the first of many names, and how many more there are."""
    more = f" and {len(names) - num:,} more" if len(names) > num else ""
    return ", ".join(map(str, names[:num])) + more


def counted(num: int, noun: str, plural: str | None = None) -> str:
    """Return a number and its noun, such as `1 step` or `1,200 steps`."""
    return f"{num:,} {noun if num == 1 else plural or noun + 's'}"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether JAX, or Python, raised an error as memory was used up."""
    # By its name: this module does without JAX, which takes a second to import.
    is_of_jax = any(kind.__name__ == "JaxRuntimeError" for kind in type(error).__mro__)
    told = is_of_jax and "RESOURCE_EXHAUSTED" in str(error)
    return told or isinstance(error, MemoryError)
