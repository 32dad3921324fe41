"""Small pictures of examples, as text that a page holds."""

import contextlib
import warnings
from collections.abc import Iterable

import numpy as np

from jaxtrain.data import files
from jaxtrain.data.doctor.look import Rules
from jaxtrain.data.doctor.scan import Scan
from jaxtrain.data.files import StoredFile, UnreadableError
from jaxtrain.data.stores import Store
from jaxtrain.pages.pictures import to_address


def draw(store: Store, scan: Scan, rules: Rules, rows: Iterable[int]) -> dict[int, str]:
    """Return row -> a picture as a data: address; what cannot be read has none."""
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for row in rows:
            if row not in scan.unreadable:
                (stored,), _ = store.read(scan.index[row : row + 1])
                # The file may be another one by now.
                with contextlib.suppress(UnreadableError):
                    found[row] = _draw(stored, rules)
    return found


def _draw(stored: StoredFile | np.ndarray, rules: Rules) -> str:
    if isinstance(stored, StoredFile):
        file = files.open_file(stored.data, rules.max_pixels)
        return to_address(file.decode(rules.channels))
    return to_address(stored)
