"""Kinds of inputs: what examples are stored as, and how they become images.

Pictures are the core's kind; plug-ins bring others, such as clips of sound.
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

# Of the facts of a set (`Store.facts`): the kind of its inputs, unless pictures.
INPUT = "input"


class FileLook(NamedTuple):
    """Properties of a file that was read as a whole.

    Attributes:
      mode: Coding of its values, in words.
      format: Format of the file, as its library calls it.
      remarks: Kinds of remarks of `data --check`, such as `clipped`.
      height: 1 of a file with one axis.
      width: Width; of a file with one axis its length in milliseconds.
    """

    mode: str
    format: str
    remarks: Sequence[str]
    height: int
    width: int


@dataclass(frozen=True)
class InputKind:
    """Pictures, and the base of other kinds of inputs.

    A subclass is a frozen dataclass with one field, the section of `data` of the same
    name, under which its row stands in `jaxtrain.data.INPUTS`. Its module is imported
    before JAX is, and by processes that decode. It implements the methods that pictures
    do not have; files and arrays that cannot be read raise `UnreadableError`.

    Attributes:
      noun: What messages call an example.
      taken: What messages say of a model of such inputs, in the plural.
      source: Kind of the source that reads folders of such files.
      files: Files of the examples.
      are_pictures: Whether examples are pictures, which the host resizes and cuts.
      dtype: Dtype of an example as it is stored.
    """

    noun: ClassVar[str] = "image"
    taken: ClassVar[str] = "sees images"
    source: ClassVar[str] = "folder"
    files: ClassVar[FileKind] = IMAGES
    are_pictures: ClassVar[bool] = True
    dtype: ClassVar[type[np.generic]] = np.uint8

    @classmethod
    def marks(cls, name: bytes) -> bool:
        """Whether a file of this name tells the kind of the folder that it lies in."""
        return formats.may_be_image(name)

    def check_installed(self) -> None:
        """Check that files can be decoded.

        Raises:
          UserError: A library is not installed.
        """

    @property
    def settings(self) -> str:
        """Text that tells inputs of the kind apart, for messages."""
        return ""

    @property
    def crops_at_random(self) -> bool:
        """Whether an example is stored as another part of its file in each epoch."""
        return False

    def changes(self) -> Mapping[str, bool]:
        """Return why examples may differ between epochs: reason -> whether it holds."""
        return {}

    def stored_shape(self, image_shape: tuple[int, int, int]) -> tuple[int, int, int]:
        """Return the shape of a stored example of an image of a shape (H, W, C)."""
        return image_shape

    def image_shape(self, stored_shape: tuple[int, int, int]) -> tuple[int, int, int]:
        """Return the shape (H, W, C) of the image that a stored example becomes."""
        return stored_shape

    def to_images(self, stored: "jax.Array") -> "jax.Array":
        """Return the images, 0..255, (B, H, W, C), of stored examples. Traced."""
        return stored

    def decode(self, data: FileData, seed: Sequence[int] | None = None) -> np.ndarray:
        """Return a file as a stored example; of pictures see `files.open_file`.

        Args:
          data: File, or why it could not be read.
          seed: Numbers, 0 or more, that a random part is a function of; None takes the
            part that evaluations see.
        """
        raise NotImplementedError

    def to_stored(self, given: Any) -> np.ndarray:
        """Return a file, or an array, as a stored example; see `inference.pixels`."""
        raise NotImplementedError

    def size_of(self, data: FileData) -> tuple[int, int]:
        """Return the resolution of a file, and its length, by its header."""
        raise NotImplementedError

    def look_at(self, data: FileData) -> FileLook:
        """Read a whole file, and describe it."""
        raise NotImplementedError


PICTURES = InputKind()


def input_of(facts: Mapping[str, Any]) -> InputKind:
    """Return the kind of the inputs of a set."""
    return facts.get(INPUT, PICTURES)
