"""Problems of a config, collected by several checks and reported together."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from jaxtrain.errors import UntrustedError, UserError

T = TypeVar("T")


class Problem(NamedTuple):
    """A problem that a check found, with its fix.

    Attributes:
      text: Message with the wrong value and the fix.
      fields: Paths of the config fields with wrong values; may be incomplete.
    """

    text: str
    fields: tuple[str, ...] = ()


class ProblemsError(UserError):
    """One or more problems, reported in one message (exit code 2)."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        texts = [problem.text.replace("\n", "\n     ") for problem in self.problems]
        if len(texts) > 1:
            rows = [f"\n  {number}. {text}" for number, text in enumerate(texts, 1)]
            texts = [f"{len(rows)} problems:", *rows]
        super().__init__("".join(texts))


class ProblemList:
    """Runs checks and collects their problems, so that one does not hide others."""

    def __init__(self) -> None:
        self.found: list[Problem] = []
        self._first: UserError | None = None

    def add(self, problems: Iterable[Problem]) -> None:
        """Add problems, without duplicate messages."""
        for problem in problems:
            if problem.text not in [known.text for known in self.found]:
                self.found.append(problem)

    def check(self, check: Callable[..., Iterable[Problem] | None], *args: Any) -> None:
        """Run a check, and add its problems.

        Args:
          check: Function that returns problems or raises UserError.
          *args: Arguments of the check. If an argument is None, because of an earlier
            problem, the check is skipped.
        """
        self.build(lambda *known: self.add(check(*known) or ()), *args)

    def build(self, function: Callable[..., T], *args: Any, **options: Any) -> T | None:
        """Call a function; if it raises UserError, add the problem and return None.

        Args:
          function: Function whose result is returned.
          *args: Positional arguments. If an argument is None, the function is not
            called, and the result is None.
          **options: Keyword arguments, which may be None.

        Raises:
          UntrustedError: The function raised this error.
        """
        if any(arg is None for arg in args):
            return None
        try:
            return function(*args, **options)
        except UntrustedError:
            raise  # Later checks may open untrusted files, or run untrusted code.
        except ProblemsError as error:
            self.add(error.problems)
        except UserError as error:
            self._first = self._first or error
            self.add([Problem(str(error))])
        except Exception:
            # A check may raise any error as a consequence of an earlier problem.
            if not self.found:
                raise
        return None

    def stop(self) -> None:
        """Raise an error if there are problems.

        Raises:
          UserError: The original error for a single problem, else a ProblemsError.
        """
        if len(self.found) == 1 and self._first is not None:
            raise self._first
        if self.found:
            raise ProblemsError(self.found)
