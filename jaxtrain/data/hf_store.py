"""Store of a data set of the library `datasets`, with encoded images."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxtrain.data.files import StoredFile
from jaxtrain.data.slices import SplitRanges
from jaxtrain.data.stores import Remark, WithTargets

# Number of examples to read at a time to hash the image sizes.
ROWS = 1000


@dataclass(frozen=True)
class HfStore(WithTargets):
    """Examples of all splits of a Hugging Face data set, concatenated.

    Attributes:
      places: Index range of each split.
      images: `datasets.Dataset` with one column of encoded images. Unpickled copies
        memory-map its files.
      target: Class index of each example, (N,), or targets (N, columns).
      facts: Metadata of the data set (`Store.facts`).
      remarks: Remarks on the data set, for users.
    """

    places: SplitRanges
    images: Any
    target: np.ndarray
    facts: Mapping[str, Any]
    remarks: tuple[Remark, ...] = ()

    # Images may differ in size. Grey images are converted to colour.
    image_shape = (None, None, 3)

    def read(self, indices: np.ndarray) -> tuple[list[StoredFile], np.ndarray]:
        (column,) = self.images.column_names
        rows = self.images[indices.tolist()][column]
        names = map(self.places.name, indices.tolist())
        return list(map(StoredFile, names, map(encoded, rows))), self.target[indices]


def digest_of(images: Any, column: str, labels: np.ndarray) -> str:
    """Return the SHA-256 of the labels and of the sizes of the encoded images."""
    import pyarrow.compute

    compute: Any = pyarrow.compute
    sha256 = hashlib.sha256(labels.tobytes())
    for table in images.with_format("arrow").iter(ROWS):
        data = compute.struct_field(table[column], "bytes")
        sizes = compute.binary_length(data).fill_null(-1)
        sha256.update(sizes.to_numpy().astype(np.int64).tobytes())
    return sha256.hexdigest()


def encoded(row: Mapping[str, Any] | None) -> bytes | OSError:
    data = None if row is None else row["bytes"]
    if data is None:
        return OSError(
            None,
            "the data set contains the path of the image, not its bytes: save the data "
            "set with save_to_disk",
        )
    return data
