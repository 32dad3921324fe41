"""Text that users bring: tables, lists and names of classes, in any common encoding.

A byte-order mark decides; without one text is UTF-8 or UTF-16, or else cp1252, as older
programs of Windows write it, which is a guess and is said.
"""

import codecs
import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jaxtrain.data.image_files import encoded_name, shown
from jaxtrain.data.problems import Remark
from jaxtrain.errors import UserError
from jaxtrain.regular_file import MAX_BYTES, AnyPath, read_bytes

# Byte-order marks -> encoding of what follows; that of UTF-16 begins that of UTF-32.
MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
# Tried in turn where text is not Unicode; the last one takes any bytes.
GUESSES = ("cp1252", "latin-1")
# Bytes at the beginning of a file that show UTF-16 without a mark.
NUM_LOOKED = 64
_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_ZIP = b"PK\x03\x04"
_YAML_TEXT, _YAML_INTEGER = "tag:yaml.org,2002:str", "tag:yaml.org,2002:int"


@dataclass(frozen=True)
class UserText:
    """Text of a user's file.

    Attributes:
      content: Text without a byte-order mark.
      encoding: Encoding of the file.
    """

    content: str
    encoding: str = "utf-8"

    @property
    def is_guess(self) -> bool:
        """Whether the encoding is a guess."""
        return self.encoding in GUESSES

    def lines(self) -> list[str]:
        """Return the lines, which CR LF, LF or CR end, without these."""
        lines = _LINE_BREAK.split(self.content)
        return lines if lines[-1] else lines[:-1]

    def remarks(self, path: AnyPath) -> tuple[Remark, ...]:
        """Return a remark that names the encoding if it is a guess."""
        if not self.is_guess:
            return ()
        name = shown(os.path.basename(os.fsencode(path)))
        told = f"{self.encoding}, a guess: if names look wrong, save it as UTF-8"
        return (Remark(f"encoding of {name}", told, serious=True),)

    def spellings(self, name: str) -> list[bytes]:
        """Return the bytes that a file of this name may have on disk, likeliest first.

        The bytes of the text come first, then UTF-8; macOS decomposes accents (NFD).

        Raises:
          UnicodeEncodeError: It is no name of a file.
        """
        found = [name.encode(self.encoding)] if self.is_guess else []
        if name.isascii():
            return [name.encode()]
        forms = (name, nfc(name), unicodedata.normalize("NFD", name))
        found += [form.encode("utf-8", "surrogateescape") for form in forms]
        return [*dict.fromkeys(found)]


def read_user_text(path: AnyPath, where: str, max_bytes: int = MAX_BYTES) -> UserText:
    """Return the text of a user's file.

    Raises:
      UserError: It cannot be read, or is no text.
    """
    try:
        return decode_user_text(read_bytes(path, max_bytes))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        place = f", seen from {os.getcwd()}" if isinstance(error, OSError) else ""
        raise UserError(f"{where}: {reason}{place}") from None


def decode_user_text(data: bytes) -> UserText:
    """Return the text of the bytes of a file."""
    if data.startswith(_ZIP):
        raise ValueError("it is a ZIP file, such as a workbook: save it as text (CSV)")
    for mark, encoding in MARKS.items():
        if data.startswith(mark):
            return UserText(_decoded(data[len(mark) :], encoding), encoding)
    for encoding in (_unmarked(data), *GUESSES):
        try:
            return UserText(_decoded(data, encoding), encoding)
        except ValueError:
            continue
    raise AssertionError("latin-1 takes any bytes")


def nfc(name: str) -> str:
    """Return a name with composed accents (Unicode's NFC), as names are compared."""
    return unicodedata.normalize("NFC", name)


def nfc_bytes(name: bytes) -> bytes:
    """Return the name of a file or a folder as names are compared, in UTF-8."""
    if name.isascii():
        return name
    return encoded_name(nfc(name.decode("utf-8", "surrogateescape")))


def parse_yaml(text: str, where: str, names: Sequence[str] = ("names",)) -> Any:
    """Parse a YAML text.

    Args:
      names: Fields at the top whose values, a list or a mapping, are to be texts.

    Raises:
      UserError: It is no YAML, has an alias of a list or of a mapping, or one of the
        texts is something else to YAML, such as `no`.
    """
    import yaml

    loader = _make_loader()(text)
    try:
        root = loader.get_single_node()
        for node in _values(root, names):
            _check_text(loader, node, where)
        return None if root is None else loader.construct_document(root)
    except UserError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        told = " ".join(str(error).split())[:200]
        raise UserError(f"{where} is no YAML: {told}") from None
    finally:
        loader.dispose()


def _decoded(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        told = f"byte {error.start} is no {encoding} ({error.reason})"
        raise ValueError(told) from None


def _unmarked(data: bytes) -> str:
    """Return the encoding of text without a mark: every other byte of UTF-16 is 0."""
    start = data[:NUM_LOOKED]
    first, second = set(start[::2]), set(start[1::2])
    if second == {0} and 0 not in first:
        return "utf-16-le"
    return "utf-16-be" if first == {0} and 0 not in second else "utf-8"


def _make_loader() -> Any:
    """Return PyYAML's safe loader without aliases of lists and mappings.

    A merge of ten aliases in each of ten lines makes ten thousand million fields.
    """
    import yaml

    class FlatLoader(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            is_alias = self.check_event(yaml.AliasEvent)
            node = super().compose_node(parent, index)
            if is_alias and not isinstance(node, yaml.ScalarNode):
                raise yaml.YAMLError("it has an alias of a list or of a mapping")
            return node

    return FlatLoader


def _values(root: Any, names: Sequence[str]) -> Iterator[Any]:
    fields = root.value if root is not None and root.id == "mapping" else ()
    for key, value in fields:
        if key.value not in names or value.id == "scalar":
            continue
        pairs = value.id == "mapping"
        yield from (inner for _, inner in value.value) if pairs else value.value


def _check_text(loader: Any, node: Any, where: str) -> None:
    """Refuse a value that YAML reads as something else than what stands there."""
    if node.id != "scalar" or node.tag == _YAML_TEXT:
        return
    value = loader.construct_object(node)
    if node.tag == _YAML_INTEGER and str(value) == node.value:
        return
    line, written = node.start_mark.line + 1, shown(node.value)
    raise UserError(
        f"{where}, line {line}: {written or 'nothing'} is {value!r} in YAML and no "
        f'text: put it in quotes: "{written}"'
    )
