"""Text files of users, such as tables and lists, in any common encoding.

A byte-order mark (BOM) determines the encoding. A file without a BOM is decoded as
UTF-8 or UTF-16 if this succeeds. Otherwise cp1252 (the encoding of older Windows
programs) is guessed, and the guess is reported.
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

# Byte-order mark -> encoding. UTF-32-LE precedes UTF-16-LE, whose mark is a prefix of
# the mark of UTF-32-LE.
MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
# Encodings to try if decoding as Unicode fails; latin-1 accepts any bytes.
GUESSES = ("cp1252", "latin-1")
# Number of bytes to inspect, at the start of a file, to detect UTF-16 without a BOM.
NUM_LOOKED = 64
_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_ZIP = b"PK\x03\x04"
_YAML_TEXT, _YAML_INTEGER = "tag:yaml.org,2002:str", "tag:yaml.org,2002:int"


@dataclass(frozen=True)
class UserText:
    """Text of a user's file.

    Attributes:
      content: Text without the byte-order mark.
      encoding: Encoding of the file.
    """

    content: str
    encoding: str = "utf-8"

    @property
    def is_guess(self) -> bool:
        """Whether the encoding was guessed."""
        return self.encoding in GUESSES

    def lines(self) -> list[str]:
        """Split the text into lines at CR LF, LF or CR."""
        lines = _LINE_BREAK.split(self.content)
        return lines if lines[-1] else lines[:-1]

    def remarks(self, path: AnyPath) -> tuple[Remark, ...]:
        """Return a remark on the encoding if it was guessed, else ()."""
        if not self.is_guess:
            return ()
        name = shown(os.path.basename(os.fsencode(path)))
        reason = (
            f"{self.encoding} (guessed): if names look wrong, save the file as UTF-8"
        )
        return (Remark(f"encoding of {name}", reason, serious=True),)

    def spellings(self, name: str) -> list[bytes]:
        """Return the possible bytes of a file name on disk, most likely first.

        The order is: the name in the guessed encoding, if any; then, in UTF-8, the
        unchanged name, its composed form (NFC) and its decomposed form (NFD, as on
        macOS).

        Raises:
          UnicodeEncodeError: The name cannot be encoded as a file name.
        """
        spellings = [name.encode(self.encoding)] if self.is_guess else []
        if name.isascii():
            return [name.encode()]
        forms = (name, nfc(name), unicodedata.normalize("NFD", name))
        spellings += [form.encode("utf-8", "surrogateescape") for form in forms]
        return [*dict.fromkeys(spellings)]


def read_user_text(path: AnyPath, where: str, max_bytes: int = MAX_BYTES) -> UserText:
    """Read and decode a user's text file.

    Args:
      path: Path of the file.
      where: Prefix of error messages.
      max_bytes: Maximum size of the file in bytes.

    Raises:
      UserError: The file is unreadable, or is not text.
    """
    try:
        return decode_user_text(read_bytes(path, max_bytes))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        place = f", relative to {os.getcwd()}" if isinstance(error, OSError) else ""
        raise UserError(f"{where}: {reason}{place}") from None


def decode_user_text(data: bytes) -> UserText:
    """Decode the contents of a text file; raise ValueError if it is not text."""
    if data.startswith(_ZIP):
        raise ValueError(
            "the file is a ZIP file, such as an Excel workbook: save the table as CSV"
        )
    for mark, encoding in MARKS.items():
        if data.startswith(mark):
            return UserText(_decoded(data[len(mark) :], encoding), encoding)
    for encoding in (_encoding_without_bom(data), *GUESSES):
        try:
            return UserText(_decoded(data, encoding), encoding)
        except ValueError:
            continue
    raise AssertionError("latin-1 accepts any bytes")


def nfc(name: str) -> str:
    """Normalize a name to Unicode NFC (composed accents), for comparisons."""
    return unicodedata.normalize("NFC", name)


def nfc_bytes(name: bytes) -> bytes:
    """Normalize a file name to Unicode NFC, encoded in UTF-8, for comparisons."""
    if name.isascii():
        return name
    return encoded_name(nfc(name.decode("utf-8", "surrogateescape")))


def parse_yaml(text: str, where: str, names: Sequence[str] = ("names",)) -> Any:
    """Parse a YAML document of a user, with PyYAML's safe loader.

    Args:
      text: YAML document to parse.
      where: Prefix of error messages.
      names: Top-level fields that hold a list of strings, or a mapping to strings.

    Raises:
      UserError: The YAML is invalid; or has an alias of a list or mapping; or has an
        unquoted string in `names` that YAML parses as another type, such as `no`.
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
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{where} is not valid YAML: {reason}") from None
    finally:
        loader.dispose()


def _decoded(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        reason = f"byte {error.start} is not valid {encoding} ({error.reason})"
        raise ValueError(reason) from None


def _encoding_without_bom(data: bytes) -> str:
    """Return utf-16-le or utf-16-be if every other byte is 0, else utf-8."""
    start = data[:NUM_LOOKED]
    first, second = set(start[::2]), set(start[1::2])
    if second == {0} and 0 not in first:
        return "utf-16-le"
    return "utf-16-be" if first == {0} and 0 not in second else "utf-8"


def _make_loader() -> Any:
    """Return PyYAML's safe loader, extended to reject aliases of lists and mappings.

    Ten aliases on each of ten nested levels would expand to ten billion values.
    """
    import yaml

    class FlatLoader(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            is_alias = self.check_event(yaml.AliasEvent)
            node = super().compose_node(parent, index)
            if is_alias and not isinstance(node, yaml.ScalarNode):
                raise yaml.YAMLError("aliases of lists or mappings are not supported")
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
    """Raise UserError for an unquoted string that YAML parses as another type."""
    if node.id != "scalar" or node.tag == _YAML_TEXT:
        return
    value = loader.construct_object(node)
    if node.tag == _YAML_INTEGER and str(value) == node.value:
        return
    line, written = node.start_mark.line + 1, shown(node.value)
    raise UserError(
        f"{where}, line {line}: {written or 'nothing'} is {value!r} in YAML, expected "
        f'a string: write "{written}", in quotes'
    )
