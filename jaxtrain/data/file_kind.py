"""Kinds of files, told by their names."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jaxtrain.data import formats
from jaxtrain.data.problems import Remark


@dataclass(frozen=True)
class FileKind:
    """A kind of files that lie in the folders of classes.

    Attributes:
      noun: What messages call one.
      is_read: Whether a file is taken for one that is read here, by its name.
      endings: Function that returns the endings of their names.
      example: Name of such a file.
      is_unread: Whether a file is one of a format that is not read here, by its name.
    """

    noun: str
    is_read: Callable[[bytes], bool]
    endings: Callable[[], Sequence[str]]
    example: str
    is_unread: Callable[[bytes], bool] = lambda name: False

    def passed_over(self, unread: Sequence[bytes]) -> tuple[Remark, ...]:
        """Return the remark on files of formats that are not read here, if any."""
        if not unread:
            return ()
        counts = formats.describe_counts(formats.count_endings(unread))
        text = f"{counts}, of formats that are not read here"
        return (Remark("passed over", text, serious=True),)

    @property
    def layout(self) -> str:
        """Layout of a folder, as messages show it."""
        place = f"CLASS/{self.example}"
        return f"{place} or, with splits, train/{place}, validation/... , test/..."


IMAGES = FileKind(
    "image", formats.is_image, formats.readable_endings, "image.jpg", formats.is_unread
)
