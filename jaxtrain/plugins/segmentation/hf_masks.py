"""Data sets of the library `datasets` whose rows have an image and a mask."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxtrain.config import DataConfig
from jaxtrain.data.files import StoredFile
from jaxtrain.data.hf_store import HfStore, digest_of, encoded
from jaxtrain.data.image_files import shown
from jaxtrain.data.slices import SplitRanges, number_examples
from jaxtrain.data.stores import Opened
from jaxtrain.plugins.segmentation.masked_store import make_masked
from jaxtrain.plugins.segmentation.pixel_classes import StoredMask, find_classes

# What columns of masks are called; the first that there is counts.
NAMES = ("mask", "annotation", "segmentation", "segmentation_mask", "label", "labels")


@dataclass(frozen=True)
class HfMasks:
    """A column of masks, in the order of the images."""

    places: SplitRanges
    # A `datasets.Dataset` with one column, of encoded images.
    column: Any

    def read(self, indices: np.ndarray) -> list[StoredMask]:
        (name,) = self.column.column_names
        rows = self.column[indices.tolist()][name]
        names = map(self.places.name, indices.tolist())
        return list(map(StoredFile, names, map(encoded, rows)))


def mask_column(library: Any, features: Any) -> str | None:
    """Return the name of the column of masks; None if targets are something else."""
    images = [n for n, kind in features.items() if isinstance(kind, library.Image)]
    labelled = any(isinstance(kind, library.ClassLabel) for kind in features.values())
    # A column of labels may have no type of its own.
    if labelled or len(images) < 2 or ("label" in features and "label" not in images):
        return None
    return next((name for name in NAMES if name in images), None)


def open_pairs(
    library: Any,
    config: DataConfig,
    whole: Any,
    image: str,
    mask: str,
    lengths: Mapping[str, Sequence[int]],
) -> Opened:
    """Return the rows of all splits as images with masks.

    Args:
      library: The library `datasets`.
      config: Config of the data; its `classes` names the file of the classes.
      whole: Rows of all splits, one after the other, with both columns.
      image: Name of the column of images.
      mask: Name of the column of masks.
      lengths: Number of rows of each split.
    """
    places, splits = number_examples(shown(config.source), lengths)
    kept = library.Image(decode=False)
    images, masks = (
        whole.select_columns([name]).cast_column(name, kept) for name in (image, mask)
    )
    nothing = np.zeros(len(whole), np.int32)
    digests = [digest_of(x, n, nothing) for x, n in ((images, image), (masks, mask))]
    store = HfStore(places, images, nothing, {})
    classes = find_classes(config, None)
    return make_masked(
        config, store, HfMasks(places, masks), splits, classes, " ".join(digests)
    )
