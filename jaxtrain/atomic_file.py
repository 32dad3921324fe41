"""Writes a file whole or not at all."""

import os
from pathlib import Path


def write(path: Path, content: str | bytes) -> None:
    """Replace a file in one move, once its content is on the disk.

    A kill or a loss of power leaves the old file or the new one.

    Raises:
      OSError: It could not be written.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:  # A signal, too. What is left would fill a full disk.
        temporary.unlink(missing_ok=True)
        raise
