"""Text that users bring: its encoding, its lines, its spellings, and texts of YAML."""

import pytest

from jaxtrain.data.text import decode_user_text, parse_yaml
from jaxtrain.errors import UserError
from tests.helpers.rows import each_row


def test_lines_end_as_in_files_alone():
    text = decode_user_text("a\r\nb\rc\x0b\x85d\n\ne".encode())
    assert text.lines() == ["a", "b", "c\x0b\x85d", "", "e"]
    assert decode_user_text(b"").lines() == []


@each_row(
    ("names", "expected"),
    [
        ("[cat, 'no', \"yes\", 7]", ["cat", "no", "yes", 7]),
        ("{0: cat, 1: 'on'}", {0: "cat", 1: "on"}),
        ("\n- cat\n- no", 'line 3: no is False in YAML, .* "no", in quotes'),
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
