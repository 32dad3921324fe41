"""Directory layout of images and masks, for `jaxtrain.data.layouts`."""

import os
from collections.abc import Sequence

from jaxtrain.data.folder_scan import holds_folders
from jaxtrain.data.layouts import FolderLayout
from jaxtrain.plugins.segmentation.mask_files import IMAGES, MASKS


class MaskLayout(FolderLayout):
    """Directories `images` and `masks`, whose files are matched by name."""

    format = "masks"

    def marked(self, place: str, names: Sequence[str]) -> str | None:
        del names
        return "masks" if holds_folders(place, IMAGES, MASKS) else None

    def in_part(
        self, place: str, part: str, names: set[str]
    ) -> tuple[str, str | None] | None:
        del place
        if not {"images", "masks"} <= names:
            return None
        return os.path.join(part, "masks"), "masks by split"
