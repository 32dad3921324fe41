"""What decoders of the server do in tests: in a module that takes no time to import."""

import os
from typing import Any

import numpy as np


def obey(data: bytes, **_: Any) -> np.ndarray:
    """Return pixels, or do what the file says."""
    while data == b"spin":
        pass
    if data == b"die":
        os._exit(3)
    return np.zeros((8, 8, 1), np.uint8)
