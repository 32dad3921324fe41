"""Directory layouts of data sets with boxes, for `jaxtrain.data.layouts`."""

import os
from collections.abc import Sequence

from jaxtrain.data.layouts import FolderLayout, kind_of_files
from jaxtrain.data.read_files import MAX_FILE_BYTES
from jaxtrain.plugins.detection.coco_layouts import annotation_files, is_coco
from jaxtrain.plugins.detection.yolo_layout import YAML, is_yolo
from jaxtrain.regular_file import open_regular

# Number of bytes that are read from a JSON file to detect its format.
START_BYTES = 2**16
COCO_KEYS = (b'"images"', b'"file_name"')


class CocoLayout(FolderLayout):
    """Directory layout with boxes in COCO JSON files."""

    format = "COCO JSON"
    endings = (".json",)

    def marked(self, place: str, names: Sequence[str]) -> str | None:
        files = annotation_files(place) if is_coco(place, names) else []
        return os.path.relpath(files[0][1], place) if files else None

    def is_list(self, file: str) -> bool:
        if not file.lower().endswith(self.endings):
            return False
        try:
            with open_regular(file, MAX_FILE_BYTES) as opened:
                start = opened.read(START_BYTES)
        except OSError:
            return False
        return all(key in start for key in COCO_KEYS)


class YoloLayout(FolderLayout):
    """Directory layout with a YOLO label file per image."""

    format = "YOLO"
    endings = (".yaml", ".yml")

    def marked(self, place: str, names: Sequence[str]) -> str | None:
        del place
        return next((n for n in names if os.fsencode(n.lower()) in YAML), None)

    def in_part(
        self, place: str, part: str, names: set[str]
    ) -> tuple[str, str | None] | None:
        if not {"images", "labels"} <= names:
            return None
        labels = os.path.join(part, "labels")
        holds_texts = kind_of_files(os.path.join(place, labels)) is None
        return labels, None if holds_texts else "images in labels"

    def laid_out(self, place: str) -> str | None:
        return "labels" if is_yolo(place) else None
