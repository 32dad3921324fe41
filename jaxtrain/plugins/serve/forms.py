"""Parsing of multipart/form-data bodies (RFC 7578) in memory.

Charset parameters are ignored: some of Python's codecs are slow, raise unexpected
errors, or return text that JSON cannot represent.
"""

import logging
from dataclasses import dataclass, field

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

# Maximum numbers of files and of fields (including files) in a form, to limit the
# parsing time.
MAX_FILES, MAX_FIELDS = 64, 1000
# Silence warnings on invalid forms: clients could flood the log.
logging.getLogger("python_multipart").setLevel(logging.ERROR)


class FormError(Exception):
    """Invalid, truncated or too large form."""


def files_of(content_type: str, body: bytes) -> list[tuple[str, bytes]]:
    """Names and contents of the files in a form, in order.

    Args:
      content_type: Content-Type header of the request.
      body: Body of the request.

    Raises:
      FormError: The body is not a form, is truncated, or has too many fields.
    """
    # Starlette decodes header values as latin-1.
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    if not boundary:
        raise FormError("the content type has no boundary")
    form = _Form()
    names = (name for name in dir(form) if name.startswith("on_"))
    try:
        parser = MultipartParser(boundary, {n: getattr(form, n) for n in names})  # pyright: ignore[reportArgumentType]
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise FormError(str(error)) from None
    if not form.ended:
        raise FormError("the form ends before the last boundary")
    return form.files


@dataclass
class _Form:
    """Parser callbacks that collect the files of a form."""

    files: list[tuple[str, bytes]] = field(default_factory=list)
    ended: bool = False
    _num_fields: int = 0
    _header: bytes = b""
    _value: bytes = b""
    _disposition: bytes = b""
    # File name and contents of the current part; the name is None if it is not a file.
    _name: str | None = None
    _content: list[bytes] = field(default_factory=list)

    def on_part_begin(self) -> None:
        self._num_fields += 1
        if self._num_fields > MAX_FIELDS:
            raise FormError(f"the form has more than {MAX_FIELDS} fields")
        self._disposition, self._name, self._content = b"", None, []

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def on_header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = self._value
        self._header = self._value = b""

    def on_headers_finished(self) -> None:
        _, options = parse_options_header(self._disposition)
        if b"name" not in options:
            raise FormError("a part has no Content-Disposition with a name")
        if b"filename" not in options:
            return
        if len(self.files) == MAX_FILES:
            raise FormError(f"the form has more than {MAX_FILES} files")
        self._name = _decoded(options[b"filename"] or options[b"name"])

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._name is not None:
            self._content.append(data[start:end])

    def on_part_end(self) -> None:
        if self._name is not None:
            self.files.append((self._name, b"".join(self._content)))

    def on_end(self) -> None:
        self.ended = True


def _decoded(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name.decode("latin-1")
