"""`data.include`: a list of the files that are kept of a set."""

import os

from jaxtrain.config import DataConfig
from jaxtrain.data.image_files import listed
from jaxtrain.data.read_files import MAX_FILE_BYTES
from jaxtrain.data.text import read_user_text
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
        self._path, self._met = path, set[str]()
        # Bytes that the name of a file may have -> its line.
        self._lines: dict[bytes, str] = {}
        if path is None:
            return
        where = f"data.include = {path!r}"
        text = read_user_text(os.path.expanduser(path), where, MAX_FILE_BYTES)
        lines = text.content.split("\0") if "\0" in text.content else text.lines()
        names = [os.path.normpath(line) for line in lines if line.strip()]
        self._lines = {text.spellings(name)[0]: name for name in names}
        for name in names:
            for other in text.spellings(name)[1:]:
                self._lines.setdefault(other, name)
        if not names:
            raise UserError(f"{where} names no file")

    def keeps(self, name: bytes) -> bool:
        """Whether a file is kept; `name` is its place in the set."""
        if self._path is None:
            return True
        line = self._lines.get(name)
        if line is not None:
            self._met.add(line)
        return line is not None

    def check_all_met(self) -> None:
        """Raise UserError if the list names files that the set does not have."""
        unknown = sorted({*self._lines.values()} - self._met)
        if unknown:
            raise UserError(
                f"data.include = {self._path!r} names {len(unknown)} files that "
                f"{self._source} does not have: {listed(unknown)}; expected their "
                "places below its folder, one a line"
            )

    @property
    def told(self) -> str:
        """Hint of messages where files may be missing for this list."""
        return (
            "" if self._path is None else f" that data.include = {self._path!r} keeps"
        )
