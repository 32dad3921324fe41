"""Interface of target images, such as segmentation masks."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from jaxtrain.config import DataConfig
from jaxtrain.data.image_files import FileNames, Folder, ImageFileStore
from jaxtrain.data.problems import Remark
from jaxtrain.data.slices import NamedSplits
from jaxtrain.data.stores import ArrayStore, Opened, Store
from jaxtrain.plugin import Table


class TargetImages:
    """A type of target images, such as segmentation masks.

    Attributes:
      column: Name of the table column that lists the paths of the target images.
      num_dims: Number of dimensions of target arrays, such as 3 for (N, H, W).
    """

    column: ClassVar[str]
    num_dims: ClassVar[int]

    def from_files(
        self,
        config: DataConfig,
        folder: Folder,
        images: ImageFileStore,
        names: FileNames,
        splits: NamedSplits,
        digest: str,
        remarks: tuple[Remark, ...],
    ) -> Opened:
        """Open the images of a table with their target images.

        Args:
          config: Data section of the config.
          folder: Directory of the table.
          images: Images of the table.
          names: Paths of the target images, in the order of `images`.
          splits: Indices of the examples of each split.
          digest: SHA-256 of the table and of the file sizes.
          remarks: Remarks on the table, for users.
        """
        raise NotImplementedError

    def checked(self, name: str, targets: np.ndarray) -> np.ndarray:
        """Validate targets, and convert them to the dtype for `from_arrays`.

        Args:
          name: Name of the array, for messages.
          targets: Integers, (N, H, W).

        Raises:
          ValueError: The targets are invalid.
        """
        raise NotImplementedError

    def from_arrays(
        self, images: ArrayStore, targets: np.ndarray, digest: str
    ) -> Store:
        """Return a store of images in memory with their targets, (N, H, W).

        Raises:
          ValueError: The targets contain nothing to learn, such as a single class.
        """
        raise NotImplementedError

    def find_column(self, library: Any, features: Any) -> str | None:
        """Return the column of target images in a `datasets` data set, or None.

        Args:
          library: The module `datasets`.
          features: Features of the data set, by column.
        """
        raise NotImplementedError

    def from_rows(
        self,
        library: Any,
        config: DataConfig,
        whole: Any,
        image: str,
        column: str,
        lengths: Mapping[str, Sequence[int]],
    ) -> Opened:
        """Open a `datasets` data set with target images.

        Args:
          library: The module `datasets`.
          config: Data section of the config.
          whole: `datasets.Dataset` of all splits, concatenated, with both columns.
          image: Name of the image column.
          column: Name of the target column.
          lengths: Split -> list with one element, its number of examples.
        """
        raise NotImplementedError


TARGET_IMAGES: Table[type[TargetImages]] = Table("target_images", {})


def kind_by_dims(num_dims: int) -> TargetImages | None:
    """Return the type of target images with `num_dims` dimensions, or None."""
    rows = TARGET_IMAGES.values()
    return next((row() for row in rows if row.num_dims == num_dims), None)


def columns() -> dict[str, str]:
    """Map the table columns that list target images to the types of target images."""
    return {row.column: kind for kind, row in TARGET_IMAGES.items()}
