"""What decodes images tells of damage by exceptions, and prints nothing."""

import ctypes
import functools
import logging
import warnings
from pathlib import Path

from PIL import Image

MAPS = Path("/proc/self/maps")


@functools.cache
def keep_quiet() -> None:
    """Quiet Pillow and its libtiff, and leave the limit of pixels to `max_pixels`."""
    warnings.filterwarnings("ignore", module=r"PIL\.")
    # Else Python prints what no handler takes.
    logging.getLogger("PIL").addHandler(logging.NullHandler())
    Image.MAX_IMAGE_PIXELS = None
    for path in _loaded("libtiff"):
        library = ctypes.CDLL(path)
        for kind in ("Error", "Warning"):
            handle = getattr(library, f"TIFFSet{kind}Handler")
            handle.argtypes, handle.restype = [ctypes.c_void_p], ctypes.c_void_p
            handle(None)


def _loaded(name: str) -> set[str]:
    """Return the files of a shared library that this process has loaded, on Linux."""
    if not MAPS.exists():
        return set()
    lines = MAPS.read_text(errors="surrogateescape").splitlines()
    paths = {line.split(maxsplit=5)[-1] for line in lines}
    return {path for path in paths if Path(path).name.startswith(name)}
