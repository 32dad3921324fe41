"""Types of data files, such as images, recognized by file extension."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jaxtrain.data import formats
from jaxtrain.data.problems import Remark


@dataclass(frozen=True)
class FileKind:
    """A type of data files, such as images or audio files.

    Attributes:
      noun: Noun for a file in messages, such as "image".
      is_read: Function that returns whether a file name has a supported extension.
      endings: Function that returns the supported extensions.
      example: Example of a file name.
      is_unread: Function that returns whether a file name has an extension of an
        unsupported format.
    """

    noun: str
    is_read: Callable[[bytes], bool]
    endings: Callable[[], Sequence[str]]
    example: str
    is_unread: Callable[[bytes], bool] = lambda name: False

    def passed_over(self, unread: Sequence[bytes]) -> tuple[Remark, ...]:
        """Return a remark with the number of skipped files per extension, or ().

        Args:
          unread: Names of skipped files in unsupported formats.
        """
        if not unread:
            return ()
        counts = formats.describe_counts(formats.count_endings(unread))
        text = f"{counts}, in unsupported formats"
        return (Remark("passed over", text, serious=True),)

    @property
    def layout(self) -> str:
        """Expected directory layout, for messages."""
        place = f"CLASS/{self.example}"
        return f"{place} or, with splits, train/{place}, validation/... , test/..."


IMAGES = FileKind(
    "image", formats.is_image, formats.readable_endings, "image.jpg", formats.is_unread
)
