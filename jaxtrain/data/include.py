"""`data.include`: a list of the files that are kept of a set."""

import os

from jaxtrain.config import DataConfig
from jaxtrain.data.image_files import listed
from jaxtrain.errors import UserError


class Include:
    """The names to keep, and which of them were met; without a list all are kept.

    The list has a name a line, or names that NUL bytes separate, as those with a line
    break in them need.

    Raises:
      UserError: it cannot be read, or names nothing.
    """

    def __init__(self, config: DataConfig):
        self._source, path = config.source, config.include
        self._path, self._names, self._met = path, set[bytes](), set[bytes]()
        if path is None:
            return
        try:
            with open(os.path.expanduser(path), "rb") as file:
                text = file.read()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"data.include = {path!r}: {reason}") from None
        lines = text.split(b"\0") if b"\0" in text else text.splitlines()
        self._names = {os.path.normpath(line) for line in lines if line.strip()}
        if not self._names:
            raise UserError(f"data.include = {path!r} names no file")

    def keeps(self, name: bytes) -> bool:
        """Whether a file is kept; `name` is its place in the set."""
        if self._path is None:
            return True
        kept = name in self._names
        if kept:
            self._met.add(name)
        return kept

    def check_all_met(self) -> None:
        """Raise UserError if the list names files that the set does not have."""
        unknown = sorted(self._names - self._met)
        if unknown:
            raise UserError(
                f"data.include = {self._path!r} names {len(unknown)} files that "
                f"{self._source} does not have: {listed(unknown)}; expected their "
                "places below its folder, one a line"
            )

    @property
    def told(self) -> str:
        """What messages add where files may be missing for this list."""
        return (
            "" if self._path is None else f" that data.include = {self._path!r} keeps"
        )
