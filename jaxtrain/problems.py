"""Problems of a config: gathered check by check, and shown together."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from jaxtrain.errors import UntrustedError, UserError

T = TypeVar("T")


class Problem(NamedTuple):
    """A mistake of the user's, with its fix.

    Attributes:
      text: Message: the value and the fix.
      fields: Paths of the fields whose values are wrong, as far as they are known.
    """

    text: str
    fields: tuple[str, ...] = ()


class ProblemsError(UserError):
    """All that is wrong, in one message (exit 2)."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        texts = [problem.text.replace("\n", "\n     ") for problem in self.problems]
        if len(texts) > 1:
            rows = [f"\n  {number}. {text}" for number, text in enumerate(texts, 1)]
            texts = [f"{len(rows)} problems:", *rows]
        super().__init__("".join(texts))


class ProblemList:
    """Collector of the problems of checks, of which none stops the others."""

    def __init__(self) -> None:
        self.found: list[Problem] = []
        self._first: UserError | None = None

    def add(self, problems: Iterable[Problem]) -> None:
        """Add problems, each text once."""
        for problem in problems:
            if problem.text not in [known.text for known in self.found]:
                self.found.append(problem)

    def check(
        self, check: Callable[..., Iterable[Problem] | None], *facts: Any
    ) -> None:
        """Run a check that returns problems or raises one.

        Args:
          check: Function of `facts`.
          *facts: What it needs to know; None, of a fact that could not be known for an
            earlier problem, leaves the check out.
        """
        self.build(lambda *known: self.add(check(*known) or ()), *facts)

    def build(
        self, function: Callable[..., T], *facts: Any, **options: Any
    ) -> T | None:
        """Return the result of a function; None where it refuses, or lacks a fact.

        Args:
          function: Function that raises UserError where it refuses.
          *facts: Its arguments; None leaves the call out, likewise.
          **options: Further arguments, of any value.

        Raises:
          UntrustedError: The function does.
        """
        if any(fact is None for fact in facts):
            return None
        try:
            return function(*facts, **options)
        except UntrustedError:
            raise  # Nothing else is opened.
        except ProblemsError as error:
            self.add(error.problems)
        except UserError as error:
            self._first = self._first or error
            self.add([Problem(str(error))])
        except Exception:
            # Of what a check has refused anything may follow.
            if not self.found:
                raise
        return None

    def stop(self) -> None:
        """Raise all problems, if there are any.

        Raises:
          UserError: There are; a single one as it was raised.
        """
        if len(self.found) == 1 and self._first is not None:
            raise self._first
        if self.found:
            raise ProblemsError(self.found)
