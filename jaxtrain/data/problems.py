"""What is wrong with a set of files: collected, and told in one message."""

from dataclasses import dataclass, field

from jaxtrain.errors import UserError

# As many are named where many are wrong in the same way.
NUM_NAMED = 5


class UnusableError(Exception):
    """Why a file or a folder of a set cannot be used.

    Args:
      text: what is wrong, which names the file.
      fix: what to do about it; problems of one fix are told together.
    """

    def __init__(self, text: str, fix: str):
        super().__init__(text)
        self.text, self.fix = text, fix


@dataclass
class _Alike:
    """Problems of one fix: the first ones in words, and the number of all."""

    first: list[str] = field(default_factory=list)
    number: int = 0


class Problems:
    """Collects problems, so that a user learns of all of them at once."""

    def __init__(self, source: str):
        self._source = source
        self._by_fix: dict[str, _Alike] = {}

    def __bool__(self) -> bool:
        return bool(self._by_fix)

    def add(self, text: str, fix: str, where: str = "") -> None:
        """Take a problem.

        Args:
          text: what is wrong.
          fix: what to do about it.
          where: the place in the source, such as `line 4`.
        """
        alike = self._by_fix.setdefault(fix, _Alike())
        alike.number += 1
        if len(alike.first) < NUM_NAMED:
            alike.first.append(f"{where}: {text}" if where else text)

    def take(self, error: UnusableError, where: str = "") -> None:
        """Take what was raised as a problem."""
        self.add(error.text, error.fix, where)

    def check(self) -> None:
        """Raise UserError, with one message for all problems, if there are any."""
        if not self._by_fix:
            return
        number = sum(alike.number for alike in self._by_fix.values())
        if number == 1:
            ((fix, alike),) = self._by_fix.items()
            text = alike.first[0]
            comma = ", " if text.startswith("line ") else ": "
            raise UserError(f"{self._source}{comma}{text}; {fix}")
        lines = [f"{self._source} cannot be used as it is, {number} things are wrong:"]
        for fix, alike in self._by_fix.items():
            lines += [f"  {text}" for text in alike.first]
            if alike.number > len(alike.first):
                lines.append(f"  and {alike.number - len(alike.first)} more like these")
            lines.append(f"    -> {fix}")
        raise UserError("\n".join(lines))
