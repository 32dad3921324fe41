"""Problems of a config, collected by checks and reported together."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from jaxtrain.errors import UntrustedError, UserError

T = TypeVar("T")


class Problem(NamedTuple):
    """A user error with its fix.

    Attributes:
      text: Message with the value and the fix.
      fields: Paths of the fields with wrong values, as far as known.
    """

    text: str
    fields: tuple[str, ...] = ()


class ProblemsError(UserError):
    """One or more problems in one message (exit 2)."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        texts = [problem.text.replace("\n", "\n     ") for problem in self.problems]
        if len(texts) > 1:
            rows = [f"\n  {number}. {text}" for number, text in enumerate(texts, 1)]
            texts = [f"{len(rows)} problems:", *rows]
        super().__init__("".join(texts))


class ProblemList:
    """Collector of problems; a failed check does not stop the others."""

    def __init__(self) -> None:
        self.found: list[Problem] = []
        self._first: UserError | None = None

    def add(self, problems: Iterable[Problem]) -> None:
        """Add problems without duplicates."""
        for problem in problems:
            if problem.text not in [known.text for known in self.found]:
                self.found.append(problem)

    def check(self, check: Callable[..., Iterable[Problem] | None], *args: Any) -> None:
        """Run a check that returns problems or raises a UserError.

        Args:
          check: Function that takes `args`.
          *args: Arguments of the check. The check is skipped if an argument is None
            because of an earlier problem.
        """
        self.build(lambda *known: self.add(check(*known) or ()), *args)

    def build(self, function: Callable[..., T], *args: Any, **options: Any) -> T | None:
        """Return the result of a function, or None if it fails or an argument is None.

        Args:
          function: Function that raises UserError on failure.
          *args: Positional arguments; the function is not called if one is None.
          **options: Keyword arguments, which may be None.

        Raises:
          UntrustedError: The function raises it.
        """
        if any(arg is None for arg in args):
            return None
        try:
            return function(*args, **options)
        except UntrustedError:
            raise  # Later checks may open files or run code of unknown origin.
        except ProblemsError as error:
            self.add(error.problems)
        except UserError as error:
            self._first = self._first or error
            self.add([Problem(str(error))])
        except Exception:
            # After a reported problem, later checks may raise any error.
            if not self.found:
                raise
        return None

    def stop(self) -> None:
        """Raise the collected problems, if there are any.

        Raises:
          UserError: The problems; a single one with its original type.
        """
        if len(self.found) == 1 and self._first is not None:
            raise self._first
        if self.found:
            raise ProblemsError(self.found)
