"""Classes of mask values, which are class indices or colours.

The class list is a text file with one class per line, in index order: `name`, or
`name,R,G,B` if the masks have colours.
"""

import csv
import dataclasses
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from jaxtrain.config import DataConfig
from jaxtrain.data import files, formats
from jaxtrain.data.files import StoredFile, UnreadableError
from jaxtrain.data.image_files import in_any_case, shown
from jaxtrain.data.pixel_classes import IGNORED
from jaxtrain.data.problems import Remark
from jaxtrain.data.text import nfc, read_user_text
from jaxtrain.errors import UserError

# Names of the class list in the directory of the data set, in order of preference.
FILES = ("classes.txt", "classes.csv")
# Image formats in which masks may be stored.
LOSSLESS = ("PNG", "BMP", "TIFF", "GIF")
# Maximum size of a class list in bytes.
MAX_BYTES = 2**20
HEADER = ["name", "r", "g", "b"]
COLUMNS_WITH_COLOURS = 4
EXPECTED = "one class per line: name, or name,R,G,B if masks have colours"

Colour = tuple[int, int, int]
# A mask in its store: a file, or validated class indices, uint8 (H, W).
StoredMask = StoredFile | np.ndarray


@dataclass(frozen=True)
class PixelClasses:
    """Class list of a data set with masks.

    Attributes:
      names: Names of the classes, in index order.
      colours: RGB colour of each class in the masks. None if the masks hold indices.
      where: Name of the class list in messages.
      remarks: Remarks for the user from reading the list.
    """

    names: tuple[str, ...]
    colours: tuple[Colour, ...] | None = None
    where: str = "the classes"
    remarks: tuple[Remark, ...] = ()

    def numbers(self, mask: StoredMask, max_pixels: int) -> np.ndarray:
        """Class indices of a mask, uint8 (H, W), with `IGNORED` for ignored pixels.

        Args:
          mask: File, or class indices, which are returned unchanged.
          max_pixels: Maximum number of pixels of a file.

        Raises:
          UnreadableError: The file is damaged, too large or in a lossy format, or a
            value is not a class.
        """
        if isinstance(mask, np.ndarray):
            return mask
        try:
            values = _decode(mask, max_pixels, in_colours=self.colours is not None)
            if self.colours is not None:
                return _of_colours(values, self.colours, self.where)
            return self._checked(values)
        except UnreadableError as error:
            raise UnreadableError(f"the mask {mask.name}: {error}") from None

    def _checked(self, values: np.ndarray) -> np.ndarray:
        wrong = ((values < 0) | (values >= len(self.names))) & (values != IGNORED)
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise UnreadableError(
                f"the value {values[row, column]} in column {column} of row {row} is "
                f"not a class: expected 0 to {len(self.names) - 1}, the classes of "
                f"{self.where}, or {IGNORED} for ignored pixels"
            )
        return values.astype(np.uint8)


def find_classes(config: DataConfig, folder: str | None) -> PixelClasses | None:
    """Read the class list from `config.classes`, or from the data set's directory.

    Args:
      config: Data config; `classes` is the path of the list, or None.
      folder: Directory of the data set; None if it is not in a directory.

    Returns:
      The classes; None if there is no class list.

    Raises:
      UserError: The class list cannot be read, or is invalid.
    """
    if config.classes is not None:
        return _read(config.classes, f"data.classes = {config.classes!r}")
    for name in FILES if folder is not None else ():
        path = in_any_case(str(folder), name)
        if path is not None:
            return _read(path, shown(path))
    return None


def _read(path: str, where: str) -> PixelClasses:
    text = read_user_text(os.path.expanduser(path), where, MAX_BYTES)
    try:
        lines = list(csv.reader(io.StringIO(text.content.rstrip()), strict=True))
    except csv.Error as error:
        raise UserError(f"{where}: {error}; expected {EXPECTED}") from None
    if lines and [field.strip().lower() for field in lines[0]] == HEADER:
        del lines[0]
    found = parsed(lines, where)
    return dataclasses.replace(found, remarks=text.remarks(path))


def parsed(lines: Sequence[Sequence[str]], where: str) -> PixelClasses:
    """Parse a class list, given the CSV fields of each line.

    Raises:
      UserError: The class list is invalid.
    """
    if not 2 <= len(lines) <= IGNORED:
        raise UserError(
            f"{where} has {len(lines)} lines: expected 2 to {IGNORED} lines, {EXPECTED}"
        )
    width = len(lines[0])
    for number, fields in enumerate(lines, 1):
        if len(fields) not in (1, COLUMNS_WITH_COLOURS) or len(fields) != width:
            raise UserError(
                f"{where}, line {number} has {len(fields)} fields: expected "
                f"{EXPECTED}, and the same number of fields on all lines; put names "
                "that contain a comma in double quotes"
            )
    names = tuple(shown(nfc(fields[0].strip())) for fields in lines)
    _check_differ([name or "(empty)" for name in names], where, "name")
    if "" in names:
        raise UserError(
            f"{where}, line {names.index('') + 1}: the class name is empty; give a name"
        )
    if width == 1:
        return PixelClasses(names, None, where)
    colours = tuple(
        _colour(fields[1:], f"{where}, line {number}")
        for number, fields in enumerate(lines, 1)
    )
    _check_differ(colours, where, "colour")
    return PixelClasses(names, colours, where)


def _check_differ(values: Sequence[Any], where: str, what: str) -> None:
    for number, value in enumerate(values, 1):
        first = values.index(value) + 1
        if first != number:
            raise UserError(
                f"{where}, line {number}: {value} is already the {what} of line "
                f"{first}; give each class a unique {what}"
            )


def _colour(fields: Sequence[str], where: str) -> Colour:
    try:
        red, green, blue = map(int, fields)
    except ValueError:
        red = green = blue = -1
    if not all(0 <= value < 256 for value in (red, green, blue)):
        raise UserError(
            f"{where}: {','.join(fields)} is not a colour: expected three numbers from "
            "0 to 255"
        )
    return red, green, blue


def _decode(mask: StoredFile, max_pixels: int, *, in_colours: bool) -> np.ndarray:
    """Decode a mask and apply its EXIF orientation.

    Returns:
      Indices, int32 (H, W), or with `in_colours` RGB colours, uint8 (H, W, 3).
    """
    file = files.open_file(mask.data, max_pixels)
    if file.format not in LOSSLESS:
        raise UnreadableError(
            f"{file.format} compression may change class indices: save the mask as PNG"
        )
    try:
        known = formats.candidates(file.data)
        with Image.open(io.BytesIO(file.data), formats=known) as image:
            picture = image.convert("RGB") if in_colours else image
            picture.load()
            if file.transpose is not None:
                picture = picture.transpose(file.transpose)
            values = np.asarray(picture)
    # Pillow raises errors of many types for damaged files.
    except Exception as error:
        raise UnreadableError(" ".join(str(error).split()) or repr(error)) from error
    return values if in_colours else _numbers(values)


def _numbers(values: np.ndarray) -> np.ndarray:
    """Convert an index mask to int32 (H, W); indices may be stored as grey RGB."""
    if values.dtype.kind not in "bui":
        raise UnreadableError(
            f"the pixels have the dtype {values.dtype}: save integers"
        )
    if values.ndim == 3:
        # Omit the alpha channel, which follows one grey or three colour channels.
        colours = values[..., : 3 if values.shape[-1] > 2 else 1]
        if (colours != colours[..., :1]).any():
            raise UnreadableError(
                "the mask has colours, but the class list has none: write name,R,G,B "
                "for each class"
            )
        values = colours[..., 0]
    return values.astype(np.int32)


def _of_colours(
    values: np.ndarray, colours: Sequence[Colour], where: str
) -> np.ndarray:
    codes = _codes(np.array(colours))
    order = np.argsort(codes)
    found = _codes(values)
    place = np.searchsorted(codes[order], found).clip(0, len(codes) - 1)
    numbers = order[place]
    wrong = codes[numbers] != found
    if wrong.any():
        red, green, blue = values[wrong][0].tolist()
        raise UnreadableError(
            f"{int(wrong.sum()):,} pixels have colours that {where} does not list, "
            f"such as {red},{green},{blue}"
        )
    return numbers.astype(np.uint8)


def _codes(colours: np.ndarray) -> np.ndarray:
    """Pack RGB colours, (..., 3), into integers, (...,)."""
    red, green, blue = np.moveaxis(colours.astype(np.int32), -1, 0)
    return red << 16 | green << 8 | blue
