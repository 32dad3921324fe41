"""Problems of a set of files: collected, and shown in one message."""

import collections
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from jaxtrain.errors import UserError

T = TypeVar("T")

# As many are named where many are wrong in the same way.
NUM_NAMED = 5


class Remark(NamedTuple):
    """Remark for users on how a set was found, such as on files passed over.

    Attributes:
      title: a few words, such as `passed over`.
      text: the rest of the sentence.
      serious: whether images are left out, or may be labelled otherwise than meant.
    """

    title: str
    text: str
    serious: bool


class UnusableError(Exception):
    """Why a file or a folder of a set cannot be used.

    Args:
      text: what is wrong, which names the file.
      fix: what to do about it; problems of one fix are told together.
      cause: Cause in a few words without a name, by which such files are counted where
        they are left out; empty for the text.
    """

    def __init__(self, text: str, fix: str, cause: str = ""):
        super().__init__(text)
        self.text, self.fix, self.cause = text, fix, cause


class Problems:
    """Collects problems, so that a user learns of all of them at once.

    Attributes:
      remarks: Remarks on what could be used, for the store.
    """

    def __init__(self, source: str):
        self._source = source
        self.remarks: list[Remark] = []
        # Of each fix the first problems in words, and the number of all: a table may
        # have a million wrong rows.
        self._by_fix: dict[str, list[str]] = {}
        self._numbers = collections.Counter[str]()

    def __bool__(self) -> bool:
        return bool(self._by_fix)

    def add(self, text: str, fix: str, where: str = "") -> None:
        """Take what is wrong, what to do about it, and where, such as `line 4`."""
        self._numbers[fix] += 1
        texts = self._by_fix.setdefault(fix, [])
        if len(texts) < NUM_NAMED:
            texts.append(f"{where}: {text}" if where else text)

    def attempt(
        self, function: Callable[..., T], *arguments: Any, where: str = ""
    ) -> T | None:
        """Call a function; return None if it raises UnusableError."""
        try:
            return function(*arguments)
        except UnusableError as error:
            self.add(error.text, error.fix, where)

    def check(self) -> None:
        """Raise UserError, with one message for all problems, if there are any."""
        if not self._by_fix:
            return
        number = self._numbers.total()
        if number == 1:
            ((fix, (text,)),) = self._by_fix.items()
            comma = ", " if text.startswith("line ") else ": "
            raise UserError(f"{self._source}{comma}{text}; {fix}")
        lines = [f"{self._source} cannot be used as it is, {number} things are wrong:"]
        for fix, texts in self._by_fix.items():
            lines += [f"  {text}" for text in texts]
            if more := self._numbers[fix] - len(texts):
                lines.append(f"  and {more} more like these")
            lines.append(f"    -> {fix}")
        raise UserError("\n".join(lines))
