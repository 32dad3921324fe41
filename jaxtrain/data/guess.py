"""Which source the path of a folder or a file stands for."""

import os

from jaxtrain.data.packed.index import INDEX

# Ending of a file -> kind of source.
BY_ENDING = {".csv": "csv", ".npz": "arrays"}


def guess_source(path: str) -> str | None:
    """Return the source that a path stands for, such as folder:photos for photos.

    Returns:
      None if there is nothing at the path, or a file of another kind.
    """
    place = os.path.expanduser(path)
    if os.path.isdir(place):
        names = os.listdir(place)
        if INDEX in names:
            return f"packed:{path}"
        idx = any("-idx3-ubyte" in name for name in names)
        return f"idx:{path}" if idx else f"folder:{path}"
    kind = BY_ENDING.get(os.path.splitext(place)[1].lower())
    return f"{kind}:{path}" if kind and os.path.isfile(place) else None
