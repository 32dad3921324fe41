"""The rows of a data set of the library `datasets`, of which images stay encoded."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxtrain.data.files import StoredFile
from jaxtrain.data.slices import SplitRanges
from jaxtrain.data.stores import Remark, WithTargets

# Read at once, to look at the sizes of images.
ROWS = 1000


@dataclass(frozen=True)
class HfStore(WithTargets):
    """The rows of all splits, one after the other, and their targets.

    Attributes:
      target: Numbers of the classes of the rows, (N,), or columns, (N, columns).
    """

    places: SplitRanges
    # A `datasets.Dataset` with one column, of encoded images. Picklable: its files are
    # mapped into memory again.
    images: Any
    target: np.ndarray
    facts: Mapping[str, Any]
    remarks: tuple[Remark, ...] = ()

    # They differ in size; those that are grey are read as colour.
    image_shape = (None, None, 3)

    def read(self, indices: np.ndarray) -> tuple[list[StoredFile], np.ndarray]:
        (column,) = self.images.column_names
        rows = self.images[indices.tolist()][column]
        names = map(self.places.name, indices.tolist())
        return list(map(StoredFile, names, map(encoded, rows))), self.target[indices]


def digest_of(images: Any, column: str, labels: np.ndarray) -> str:
    """Return the SHA-256 of the labels and the sizes of the images, in their order."""
    import pyarrow.compute

    compute: Any = pyarrow.compute
    found = hashlib.sha256(labels.tobytes())
    for table in images.with_format("arrow").iter(ROWS):
        data = compute.struct_field(table[column], "bytes")
        sizes = compute.binary_length(data).fill_null(-1)
        found.update(sizes.to_numpy().astype(np.int64).tobytes())
    return found.hexdigest()


def encoded(row: Mapping[str, Any] | None) -> bytes | OSError:
    data = None if row is None else row["bytes"]
    if data is None:
        return OSError(
            None, "the set holds its path, not the image: write it with save_to_disk"
        )
    return data
