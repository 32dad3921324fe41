"""Targets that are images, such as masks, in sources that have other targets, too."""

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
    """A kind of targets that are images.

    Attributes:
      column: Column of a table that names their files, in place of `label`.
      num_dims: Number of dimensions of an array of them: examples, height, width.
    """

    column: ClassVar[str]
    num_dims: ClassVar[int]

    def of_files(
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
          names: Files of the targets, in the order of the images.
          digest: SHA-256 of the table and the sizes of the files.
        """
        raise NotImplementedError

    def checked(self, name: str, targets: np.ndarray) -> np.ndarray:
        """Return an array of targets in the dtype that `of_arrays` takes.

        Args:
          targets: Integers, (N, H, W).

        Raises:
          ValueError: They are no targets of this kind.
        """
        raise NotImplementedError

    def of_arrays(self, images: ArrayStore, targets: np.ndarray, digest: str) -> Store:
        """Return images in memory with their targets, (N, H, W).

        Raises:
          ValueError: There is nothing to learn.
        """
        raise NotImplementedError

    def find_column(self, library: Any, features: Any) -> str | None:
        """Return the column of targets of a set of `datasets`; None: it has none."""
        raise NotImplementedError

    def of_rows(
        self,
        library: Any,
        config: DataConfig,
        whole: Any,
        image: str,
        column: str,
        lengths: Mapping[str, Sequence[int]],
    ) -> Opened:
        """Return the rows of a set of `datasets` with their targets.

        Args:
          whole: Rows of all splits, one after the other, with both columns.
          image: Name of the column of images.
          column: Name of the column of targets.
          lengths: Number of rows of each split.
        """
        raise NotImplementedError


TARGET_IMAGES: Table[type[TargetImages]] = Table("target_images", {})


def of_dims(num_dims: int) -> TargetImages | None:
    """Return the kind of an array with this number of dimensions."""
    rows = TARGET_IMAGES.values()
    return next((row() for row in rows if row.num_dims == num_dims), None)


def columns() -> dict[str, str]:
    """Column of a table -> kind of the targets whose files it names."""
    return {row.column: kind for kind, row in TARGET_IMAGES.items()}
