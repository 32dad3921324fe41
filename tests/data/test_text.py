"""Text that users bring: its encoding, its lines, its spellings, and texts of YAML."""

import pytest

from jaxtrain.data.text import decode_user_text, nfc, parse_yaml
from jaxtrain.errors import UserError
from tests.helpers.rows import each_row


@each_row(
    ("data", "content", "guess"),
    [
        (b"", "", False),
        ("Käfer".encode(), "Käfer", False),
        ("Käfer".encode("utf-8-sig"), "Käfer", False),
        ("Käfer".encode("utf-16"), "Käfer", False),
        ("Käfer".encode("utf-32"), "Käfer", False),
        ("path,Käfer".encode("utf-16-be"), "path,Käfer", False),
        (b"K\xe4fer \x80", "Käfer €", True),
        (b"K\xe4fer \x81", "Käfer \x81", True),
        (b"a\0b/c\0", "a\0b/c\0", False),
    ],
)
def test_encodings(data: bytes, content: str, guess: bool):
    text = decode_user_text(data)
    assert (text.content, text.is_guess) == (content, guess)
    told = [remark.text for remark in text.remarks(b"dir/names.txt")]
    assert [text.encoding in t and "UTF-8" in t for t in told] == [True] * guess


@each_row(
    ("data", "message"),
    [
        (b"PK\x03\x04...", "ZIP file, such as a workbook"),
        (b"\xff\xfea", "byte 0 is no utf-16-le"),
    ],
)
def test_what_is_no_text(data: bytes, message: str):
    with pytest.raises(ValueError, match=message):
        decode_user_text(data)


def test_lines_end_as_in_files_alone():
    text = decode_user_text("a\r\nb\rc\x0b\x85d\n\ne".encode())
    assert text.lines() == ["a", "b", "c\x0b\x85d", "", "e"]
    assert decode_user_text(b"").lines() == []


def test_spellings_of_a_file_name():
    composed, decomposed = "\xe9".encode(), "e\u0301".encode()
    assert nfc("e\u0301") == "\xe9"
    assert decode_user_text(b"").spellings("a") == [b"a"]
    assert decode_user_text(b"").spellings("\xe9") == [composed, decomposed]
    assert decode_user_text(b"").spellings("e\u0301") == [decomposed, composed]
    assert decode_user_text(b"\xe9").spellings("\xe9") == [
        b"\xe9",
        composed,
        decomposed,
    ]


@each_row(
    ("names", "expected"),
    [
        ("[cat, 'no', \"yes\", 7]", ["cat", "no", "yes", 7]),
        ("{0: cat, 1: 'on'}", {0: "cat", 1: "on"}),
        ("\n- cat\n- no", 'line 3: no is False in YAML .* in quotes: "no"'),
        ("{0: cat, 1: Yes}", "line 1: Yes is True"),
        ("[a, ~]", "~ is None"),
        ("[1.0]", "1.0 is 1.0 in YAML"),
        ("[2020-01-02]", "2020-01-02 is datetime.date"),
        ("[[a]]", [["a"]]),
    ],
)
def test_texts_of_yaml(names: str, expected: object):
    text = f"names: {names}\nflag: yes\n"
    if isinstance(expected, str):
        with pytest.raises(UserError, match=f"^data.yaml, {expected}|{expected}"):
            parse_yaml(text, "data.yaml")
    else:
        assert parse_yaml(text, "data.yaml") == {"names": expected, "flag": True}
