"""Masks of Hugging Face data sets, which have an image column and a mask column."""

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

# Recognized names of a mask column, in order of preference.
NAMES = ("mask", "annotation", "segmentation", "segmentation_mask", "label", "labels")


@dataclass(frozen=True)
class HfMasks:
    """Store of the masks in a column of a Hugging Face data set."""

    places: SplitRanges
    # A `datasets.Dataset` that has only the mask column, with encoded images.
    column: Any

    def read(self, indices: np.ndarray) -> list[StoredMask]:
        (name,) = self.column.column_names
        rows = self.column[indices.tolist()][name]
        names = map(self.places.name, indices.tolist())
        return list(map(StoredFile, names, map(encoded, rows)))


def mask_column(library: Any, features: Any) -> str | None:
    """Name of the mask column; None if the data set has other targets."""
    images = [n for n, kind in features.items() if isinstance(kind, library.Image)]
    labelled = any(isinstance(kind, library.ClassLabel) for kind in features.values())
    # A column `label` that has no images may hold class labels, even if its type is not
    # `ClassLabel`.
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
    """Open a Hugging Face data set as images with masks.

    Args:
      library: Imported module `datasets`.
      config: Data config; `classes` is the path of the class list.
      whole: A `datasets.Dataset` with the rows of all splits, concatenated.
      image: Name of the image column.
      mask: Name of the mask column.
      lengths: Number of rows in each shard, by split.
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
