"""Images and boxes of a COCO instances file."""

import os
from typing import Any

from jaxtrain.config import DataConfig
from jaxtrain.data import files
from jaxtrain.data.files import UnreadableError
from jaxtrain.data.image_files import Folder, shown
from jaxtrain.data.problems import Problems, UnusableError
from jaxtrain.data.read_files import read_unless_large
from jaxtrain.plugins.detection import coco_values, left_out
from jaxtrain.plugins.detection.box_lists import ListedBox, ListedImage
from jaxtrain.plugins.detection.coco_layouts import CocoFile
from jaxtrain.plugins.detection.coco_paths import ImageFinder
from jaxtrain.plugins.detection.coco_values import Id, NamedImage
from jaxtrain.plugins.detection.left_out import LeftOut
from jaxtrain.plugins.segmentation import upright

LISTS = ("images", "annotations", "categories")


class ImageReader:
    """Reader of the images and boxes of one COCO file.

    Args:
      config: `data` section of the config.
      folder: Directory of all images.
      file: Annotation file of the split.
      named: Whether messages include the file name, because there are several files.
      problems: Collector of errors that `data.max_bad_fraction` does not cover.

    Attributes:
      counts: Numbers of images and boxes that are left out.
    """

    def __init__(
        self,
        config: DataConfig,
        folder: Folder,
        file: CocoFile,
        named: bool,
        problems: Problems,
    ):
        self._config, self._folder = config, folder
        self._prefix = f"{os.path.basename(file.path)}, " if named else ""
        self._problems, self.counts = problems, LeftOut()
        places = file.places if config.images_dir is None else ("", *file.places)
        self._finder = ImageFinder(folder, places)

    def images(
        self, values: dict[str, list[Any]], kinds: dict[Id, int]
    ) -> list[ListedImage]:
        """Return the usable images of the file, with their boxes.

        It is an error if the unusable fraction exceeds `data.max_bad_fraction`.

        Args:
          values: Lists of the file, as returned by `coco.read_lists`.
          kinds: Category id -> class index.
        """
        # The value is None for images that are left out.
        found: dict[Id, ListedImage | None] = {}
        first = dict[bytes, str]()
        for i, value in enumerate(values["images"]):
            self._add_image(value, f"{self._prefix}images[{i}]", found, first)
        seen = set[int]()
        for i, value in enumerate(values["annotations"]):
            self._add_box(value, f"{self._prefix}annotations[{i}]", found, kinds, seen)
        for title, name in ((left_out.IMAGES, LISTS[0]), (left_out.BOXES, LISTS[1])):
            num = len(values[name])
            self.counts.check(title, num, self._config, self._problems)
        return [one for one in found.values() if one is not None]

    def _add_image(
        self,
        value: Any,
        where: str,
        found: dict[Id, ListedImage | None],
        first: dict[bytes, str],
    ) -> None:
        attempt, title = self.counts.attempt, left_out.IMAGES
        read = attempt(title, coco_values.image, value, where=where)
        if read is None:
            return
        fix = "give each image a unique id, and list it once"
        if read.id in found:
            self._problems.add(f"the id {read.id} occurs twice", fix, where)
            return
        found[read.id] = image = attempt(
            title, self._listed, read, where, where=f"{where}, {shown(read.name)}"
        )
        if image is not None and image.path in first:
            text = f"{shown(image.path)} is already listed as {first[image.path]}"
            self._problems.add(text, fix, where)
        elif image is not None:
            first[image.path] = where

    def _listed(self, image: NamedImage, where: str) -> ListedImage:
        """Return an image with its resolved path and its size, without boxes.

        Raises:
          UnusableError: The file does not exist, or its size is unknown.
        """
        path = self._finder.find(image.name)
        return ListedImage(where, path, image.size or self._size(path), [])

    def _size(self, path: bytes) -> tuple[int, int]:
        """Return (height, width) of an image file, in the orientation of the boxes.

        Raises:
          UnusableError: The file is not a readable image.
        """
        place = os.path.join(os.fsencode(self._folder.root), path)
        try:
            file = files.open_file(read_unless_large(place), self._config.max_pixels)
        except UnreadableError as error:
            text = (
                f"{shown(path)} has no width and height in the annotation file, and is "
                f"unreadable: {error}"
            )
            fix = "replace the image, or remove the entry of the image"
            raise UnusableError(text, fix, "without a size") from None
        size = file.height, file.width
        if self._config.boxes_drawn_on == upright.STORED:
            return upright.stored_size(size, file.orientation)
        return size

    def _add_box(
        self,
        value: Any,
        where: str,
        found: dict[Id, ListedImage | None],
        kinds: dict[Id, int],
        seen: set[int],
    ) -> None:
        title = left_out.BOXES
        read = self.counts.attempt(title, coco_values.annotation, value, where=where)
        if read is None:
            return
        if read.image not in found:
            self.counts.add(title, "of images that are not listed", where)
            return
        image = found[read.image]
        if image is None:  # Boxes of a left-out image are not counted.
            return
        if read.category not in kinds:
            text, fix = f"no category has the id {read.category}", "add the category"
            cause = "of categories that are not listed"
            defect = left_out.Defect(text, fix, where)
            self.counts.add_defect(title, cause, defect)
            return
        key = hash((str(value.get("id")), read))
        if "id" in value and key in seen:
            self.counts.add(title, "that are listed twice", where)
            return
        seen.add(key)
        assert image.size is not None
        corners = self.counts.clip(read.box, image.size, where)
        if corners is not None:
            box = ListedBox(corners, kinds[read.category], read.crowd)
            image.boxes.append(box)
