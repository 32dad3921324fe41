"""`data.include`: text file that restricts a data set to the listed files."""

import os

from jaxtrain.config import DataConfig
from jaxtrain.data.image_files import listed
from jaxtrain.data.read_files import MAX_FILE_BYTES
from jaxtrain.data.text import read_user_text
from jaxtrain.errors import UserError


class Include:
    """Filter of files by the list in `data.include`; without a list, all files pass.

    Names are separated by newlines, or by NUL bytes if the list contains NUL bytes.

    Raises:
      UserError: The list is unreadable or empty.
    """

    def __init__(self, config: DataConfig):
        self._source, path = config.source, config.include
        self._path, self._used = path, set[str]()
        # Bytes that a file name may have on disk -> line of the list.
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
            raise UserError(f"{where} lists no file: add one path per line")

    def keeps(self, name: bytes) -> bool:
        """Whether to use a file, given its path relative to the data set."""
        if self._path is None:
            return True
        line = self._lines.get(name)
        if line is not None:
            self._used.add(line)
        return line is not None

    def check_all_met(self) -> None:
        """Raise UserError if the list names files that the data set lacks."""
        unknown = sorted({*self._lines.values()} - self._used)
        if unknown:
            raise UserError(
                f"data.include = {self._path!r} lists {len(unknown)} files that "
                f"{self._source} does not contain: {listed(unknown)}; give paths "
                "relative to the directory of the source, one per line"
            )

    @property
    def hint(self) -> str:
        """Suffix of messages about missing images; empty without `data.include`."""
        return (
            "" if self._path is None else f" that data.include = {self._path!r} keeps"
        )
