"""Types of inputs: their storage, and their conversion to images.

The core supports images; plug-ins add other types, such as audio clips.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from jaxtrain.data import formats
from jaxtrain.data.file_kind import IMAGES, FileKind
from jaxtrain.data.read_files import FileData

if TYPE_CHECKING:
    import jax

# Key of the input type in `Store.facts`; absent for images.
INPUT = "input"


class FileLook(NamedTuple):
    """Properties of a data file, for `data --check`.

    Attributes:
      mode: Description of the encoding of the values.
      format: Name of the file format, as in the library that reads the file.
      remarks: Names of problems to report in `data --check`, such as `clipped`.
      height: Height in pixels, or 1 for files with one axis.
      width: Width in pixels, or length in milliseconds for files with one axis.
    """

    mode: str
    format: str
    remarks: Sequence[str]
    height: int
    width: int


@dataclass(frozen=True)
class InputKind:
    """Base class of input types; the base class itself represents images.

    A subclass is a frozen dataclass with one field: its section of the `data` config.
    The name of the field is the key of the subclass in `jaxtrain.data.INPUTS`. The
    module must not import JAX, because it is imported before JAX, and by decoding
    processes. A subclass implements `decode`, `to_stored`, `size_of` and `look_at`,
    which images do not need. These methods raise `UnreadableError` for unreadable files
    and arrays.

    Attributes:
      noun: Noun for an example in messages.
      source: Source type (see `SOURCES`) that reads directories of such files.
      files: Type of the examples' files.
      are_images: Whether examples are images, which the host resizes and crops.
      dtype: Dtype of stored examples.
    """

    noun: ClassVar[str] = "image"
    source: ClassVar[str] = "folder"
    files: ClassVar[FileKind] = IMAGES
    are_images: ClassVar[bool] = True
    dtype: ClassVar[type[np.generic]] = np.uint8

    @classmethod
    def marks(cls, name: bytes) -> bool:
        """Whether a file name shows that its directory contains inputs of this type."""
        return formats.may_be_image(name)

    def check_installed(self) -> None:
        """Check that the libraries to decode files are installed.

        Raises:
          UserError: A library is missing.
        """

    @property
    def settings(self) -> str:
        """Description of the config section, for messages."""
        return ""

    @property
    def crops_at_random(self) -> bool:
        """Whether each epoch uses a different random crop of each example."""
        return False

    def changes(self) -> Mapping[str, bool]:
        """Reasons why examples may differ between epochs -> whether each applies.

        The reasons are clauses for messages, such as "clips are cropped at random".
        """
        return {}

    def stored_shape(self, image_shape: tuple[int, int, int]) -> tuple[int, int, int]:
        """Return the stored shape of an example, given its image shape (H, W, C)."""
        return image_shape

    def image_shape(self, stored_shape: tuple[int, int, int]) -> tuple[int, int, int]:
        """Return the image shape (H, W, C) of an example, given its stored shape."""
        return stored_shape

    def to_images(self, stored: "jax.Array") -> "jax.Array":
        """Convert stored examples to images (B, H, W, C) in 0..255. Traceable."""
        return stored

    def decode(self, data: FileData, seed: Sequence[int] | None = None) -> np.ndarray:
        """Decode a file to a stored example; for images see `files.open_file`.

        Args:
          data: Contents of the file, or an error from reading it.
          seed: Non-negative integers that determine a random crop. None means the
            evaluation crop.
        """
        raise NotImplementedError

    def to_stored(self, given: Any) -> np.ndarray:
        """Convert a file or an array to a stored example; see `inference.pixels`."""
        raise NotImplementedError

    def size_of(self, data: FileData) -> tuple[int, int]:
        """Read the height and width from a file's header; units as in `FileLook`."""
        raise NotImplementedError

    def look_at(self, data: FileData) -> FileLook:
        """Read a file completely, and return its properties."""
        raise NotImplementedError


PICTURES = InputKind()


def input_of(facts: Mapping[str, Any]) -> InputKind:
    """Return the input type of a data set, given its `Store.facts`."""
    return facts.get(INPUT, PICTURES)
