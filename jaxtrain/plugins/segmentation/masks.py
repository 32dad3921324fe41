"""Opening of masks from files, tables, arrays and Hugging Face data sets."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxtrain.config import DataConfig
from jaxtrain.data.image_files import FileNames, Folder, ImageFileStore
from jaxtrain.data.problems import Remark
from jaxtrain.data.slices import NamedSplits
from jaxtrain.data.stores import ArrayStore, Opened
from jaxtrain.data.target_images import TargetImages
from jaxtrain.plugins.segmentation import array_masks, hf_masks
from jaxtrain.plugins.segmentation.mask_files import MaskFiles
from jaxtrain.plugins.segmentation.masked_store import MaskedStore, make_masked
from jaxtrain.plugins.segmentation.pixel_classes import find_classes


class MaskTargets(TargetImages):
    """Masks as target images: one class per pixel."""

    column = "mask"
    num_dims = 3

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
        masks = MaskFiles(folder.root, names)
        classes = find_classes(config, folder.root)
        return make_masked(
            config, images, masks, splits, classes, digest, remarks=remarks
        )

    def checked(self, name: str, targets: np.ndarray) -> np.ndarray:
        return array_masks.checked(name, targets)

    def from_arrays(
        self, images: ArrayStore, targets: np.ndarray, digest: str
    ) -> MaskedStore:
        return array_masks.with_masks(images, targets, digest)

    def find_column(self, library: Any, features: Any) -> str | None:
        return hf_masks.mask_column(library, features)

    def from_rows(
        self,
        library: Any,
        config: DataConfig,
        whole: Any,
        image: str,
        column: str,
        lengths: Mapping[str, Sequence[int]],
    ) -> Opened:
        return hf_masks.open_pairs(library, config, whole, image, column, lengths)
