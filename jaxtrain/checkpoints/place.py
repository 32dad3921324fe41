"""Where checkpoints may lie."""

import os
from pathlib import Path

from jaxtrain.console import printable
from jaxtrain.errors import UserError


def check_name(folder: Path) -> None:
    """Check that TensorStore can open a folder: it takes names in UTF-8 alone.

    Raises:
      UserError: The absolute path is not UTF-8.
    """
    path = os.path.abspath(folder)
    try:
        os.fsencode(path).decode()
    except UnicodeDecodeError:
        raise UserError(
            f"{printable(path)}: the name of a folder in it is not UTF-8, and "
            "checkpoints can be neither written nor read there: rename it, or choose "
            "another --workdir"
        ) from None
