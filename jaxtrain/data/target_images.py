"""Image-like targets, such as masks, in sources with other targets."""

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
    """A kind of image-like targets.

    Attributes:
      column: Column of a table with their file paths, in place of `label`.
      num_dims: Number of dimensions of their arrays: examples, height, width.
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
        """Return the images of a table with their targets.

        Args:
          config: Data section of the config.
          folder: Directory of the table.
          images: Images of the table.
          names: Files of the targets, in the order of the images.
          splits: Indices of the examples of each split.
          digest: SHA-256 of the table and the sizes of the files.
          remarks: Remarks on the table, for users.
        """
        raise NotImplementedError

    def checked(self, name: str, targets: np.ndarray) -> np.ndarray:
        """Validate targets and convert them to the dtype that `from_arrays` takes.

        Args:
          name: Name of the array, for messages.
          targets: Integers, (N, H, W).

        Raises:
          ValueError: Invalid targets of this kind.
        """
        raise NotImplementedError

    def from_arrays(
        self, images: ArrayStore, targets: np.ndarray, digest: str
    ) -> Store:
        """Return images in memory with their targets, (N, H, W).

        Raises:
          ValueError: There is nothing to learn.
        """
        raise NotImplementedError

    def find_column(self, library: Any, features: Any) -> str | None:
        """Return the target column of a `datasets` data set, or None."""
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
        """Return the rows of a `datasets` data set with their targets.

        Args:
          library: The module `datasets`.
          config: Data section of the config.
          whole: Concatenated rows of all splits, with both columns.
          image: Name of the image column.
          column: Name of the target column.
          lengths: Number of rows of each split.
        """
        raise NotImplementedError


TARGET_IMAGES: Table[type[TargetImages]] = Table("target_images", {})


def kind_by_dims(num_dims: int) -> TargetImages | None:
    """Return the kind of targets with this number of dimensions, or None."""
    rows = TARGET_IMAGES.values()
    return next((row() for row in rows if row.num_dims == num_dims), None)


def columns() -> dict[str, str]:
    """Return the kinds of targets by the table column of their files."""
    return {row.column: kind for kind, row in TARGET_IMAGES.items()}
