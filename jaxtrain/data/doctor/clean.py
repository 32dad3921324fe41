"""The list of the images that are good, for `data.include`."""

import os
from collections.abc import Collection
from typing import Any

from jaxtrain.data.doctor.scan import Scan
from jaxtrain.errors import UserError


def check_names(store: Any, source: str) -> None:
    """Check that the images of a set are files that a list can name.

    Raises:
      UserError: they are not.
    """
    if not hasattr(store, "names"):
        raise UserError(
            f"--write-clean: the images of {source} are no files that data.include "
            "could name; leave it out"
        )


def names(store: Any, scan: Scan, left_out: Collection[int]) -> bytes:
    """Return the names of the images that stay, one a line.

    If a name has a line break, NUL separates the names instead.

    Args:
      store: has `names`, of which `names[index]` is the place of a file below the
        folder of the set, in bytes.
      scan: of the set.
      left_out: rows that do not stay.
    """
    kept = [
        os.fsencode(store.names[index])
        for row, index in enumerate(scan.index.tolist())
        if row not in left_out
    ]
    breaks = any(len(name.splitlines()) > 1 for name in kept)
    return b"".join(name + (b"\0" if breaks else b"\n") for name in kept)
