"""Problems and remarks on data sets; problems are reported in one message."""

import collections
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from jaxtrain.errors import UserError

T = TypeVar("T")

# Maximum number of problems per remedy to list in the message.
NUM_NAMED = 5


class Remark(NamedTuple):
    """Remark for users about a data set, for example about ignored files.

    Attributes:
      title: Short title, such as `passed over`.
      text: Text of the remark.
      serious: Whether images are ignored, or may be mislabelled.
    """

    title: str
    text: str
    serious: bool


class UnusableError(Exception):
    """A file or directory of a data set cannot be used.

    Args:
      text: Problem, including the name of the file.
      fix: Remedy. Problems with the same remedy are reported together.
      cause: Problem without the file name, to group skipped files. Defaults to the
        text.
    """

    def __init__(self, text: str, fix: str, cause: str = ""):
        super().__init__(text)
        self.text, self.fix, self.cause = text, fix, cause


class Problems:
    """Collector of problems of a data set, so that users see all problems at once.

    Attributes:
      remarks: Remarks on the data set, to pass to its store.
    """

    def __init__(self, source: str):
        self._source = source
        self.remarks: list[Remark] = []
        # Remedy -> first problems, and remedy -> number of problems. Not all problems
        # are stored, because a table may have a million invalid rows.
        self._by_fix: dict[str, list[str]] = {}
        self._numbers = collections.Counter[str]()

    def __bool__(self) -> bool:
        return bool(self._by_fix)

    def add(self, text: str, fix: str, where: str = "") -> None:
        """Add a problem.

        Args:
          text: Description of the problem.
          fix: Remedy, in the imperative.
          where: Location of the problem, such as `line 4`.
        """
        self._numbers[fix] += 1
        texts = self._by_fix.setdefault(fix, [])
        if len(texts) < NUM_NAMED:
            texts.append(f"{where}: {text}" if where else text)

    def attempt(
        self, function: Callable[..., T], *arguments: Any, where: str = ""
    ) -> T | None:
        """Return a function's result, or None after recording an UnusableError."""
        try:
            return function(*arguments)
        except UnusableError as error:
            self.add(error.text, error.fix, where)

    def check(self) -> None:
        """Raise UserError with one message for all problems, if there are any."""
        if not self._by_fix:
            return
        number = self._numbers.total()
        if number == 1:
            ((fix, (text,)),) = self._by_fix.items()
            comma = ", " if text.startswith("line ") else ": "
            raise UserError(f"{self._source}{comma}{text}; {fix}")
        lines = [f"{self._source} cannot be used because of {number} problems:"]
        for fix, texts in self._by_fix.items():
            lines += [f"  {text}" for text in texts]
            if more := self._numbers[fix] - len(texts):
                lines.append(f"  and {more} more like these")
            lines.append(f"    -> {fix}")
        raise UserError("\n".join(lines))
