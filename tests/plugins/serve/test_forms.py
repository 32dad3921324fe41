"""Forms: their files, whatever the header claims, and the one error of all others."""

import json
import random

import pytest

from jaxtrain.plugins.serve.forms import MAX_FIELDS, MAX_FILES, FormError, files_of
from tests.helpers.rows import each_row

KIND, END = "multipart/form-data; boundary=edge", b"--edge--\r\n"


def part(
    *, name: bytes = b'name="file"; filename="a.png"', content: bytes = b"x"
) -> bytes:
    head = b"--edge\r\nContent-Disposition: form-data; " + name + b"\r\n"
    return head + b"Content-Type: text/plain; charset=xyz\r\n\r\n" + content + b"\r\n"


# Content type and header of the part -> the name that the file then has.
NAMES = {
    "no such charset": ("; charset=xyz", b'filename="a.png"', "a.png"),
    # Python's codecs turn these into surrogates, which no JSON text may hold.
    "unicode_escape": ("; charset=unicode_escape", rb"filename=\ud800", r"\ud800"),
    "utf-7": ("; charset=utf-7", b'filename="+2AA-"', "+2AA-"),
    "a codec that fails": ("; charset=undefined", b'filename="a"', "a"),
    "UTF-8": ("", 'filename="ä.png"'.encode(), "ä.png"),
    "no UTF-8": ("", b'filename="\xe4.png"', "ä.png"),
    # RFC 7578, 4.2: such a parameter has no meaning in a form.
    "extended": ("", b"filename=\"a\"; filename*=xyz''%ff%fe", "a"),
    "no name of a file": ("", b'filename=""', "file"),
}


@each_row("case", NAMES)
def test_files_have_the_names_of_their_header(case: str):
    extra, header, expected = NAMES[case]
    body = part(name=b'name="file"; ' + header) + END
    assert files_of(KIND + extra, body) == [(expected, b"x")]


def test_parts_of_one_name_are_told_apart_and_a_form_within_is_a_file():
    nested = part(content=b"inner").replace(b"edge", b"other")
    body = part() + part(content=nested) + part(name=b'name="a"') + END
    assert files_of(KIND, body) == [("a.png", b"x"), ("a.png", nested)]


BAD = {
    "no boundary": ("multipart/form-data", part() + END, "has no boundary"),
    "an empty boundary": ("multipart/form-data; boundary=", END, "has no boundary"),
    "cut off": (KIND, part() + part()[:-9], "ends before the last boundary"),
    "no header": (KIND, b"--edge\r\n\r\nx\r\n" + END, "no Content-Disposition"),
    "no name": (KIND, part(name=b'filename="a"') + END, "no Content-Disposition"),
    "a header that is none": (KIND, b"--edge\r\nA B\r\n\r\n" + END, "header"),
    "many files": (KIND, part() * (MAX_FILES + 1) + END, "more than 64 files"),
    "many fields": (
        KIND,
        part(name=b'name="a"') * (MAX_FIELDS + 1) + END,
        "more than 1000 fields",
    ),
}


@each_row("case", BAD)
def test_why_a_form_cannot_be_read(case: str):
    kind, body, message = BAD[case]
    with pytest.raises(FormError, match=message):
        files_of(kind, body)


def test_changed_forms_are_read_or_refused():
    draws = random.Random(0)
    pieces = [b"\r\n", b"--edge", b'"', b"=", b";", b"\\", b"\0", b"\xff", b"*=u''%ff"]
    whole = part() + part(name=b'name="b"') + END
    num_read = 0
    for _ in range(3000):
        kind, body = bytearray(KIND.encode()), bytearray(whole)
        for _ in range(draws.randint(1, 4)):
            text = draws.choice((kind, body, body, body))
            place = draws.randrange(len(text) + 1)
            taken = draws.randint(0, 5)
            text[place : place + taken] = draws.choice(pieces)
        try:
            found = files_of(kind.decode("latin-1"), bytes(body))
        except FormError:
            continue
        num_read += 1
        json.dumps([name for name, _ in found], ensure_ascii=False).encode()
    assert num_read > 100
