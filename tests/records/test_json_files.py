"""JSON files that are read back: a digest finds damage, one message tells of it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

import pytest

from jaxtrain.errors import UserError
from jaxtrain.json_files.parse import MAX_DEPTH, parse
from jaxtrain.json_files.read import with_digest
from jaxtrain.json_files.run_id import read_of_run
from jaxtrain.json_files.typed import convert, fitting
from tests.helpers.rows import each_row


@dataclass(frozen=True, kw_only=True)
class Inner:
    sizes: tuple[int, int]
    rate: float | None = None
    kind: Literal["a", "b"] = "a"
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.sizes[0] < 0:
            raise UserError(f"sizes = {self.sizes}, expected 0 or more")


class Outer(TypedDict):
    inner: Inner
    counts: dict[str, int]
    done: NotRequired[bool]


GOOD = {"inner": {"sizes": [1, 2]}, "counts": {"train": 3}}


def test_values_get_their_types():
    found = convert({**GOOD, "more": [1]}, Outer, "x.json")
    expected = {"inner": Inner(sizes=(1, 2)), "counts": {"train": 3}, "more": [1]}
    assert found == expected
    rated = convert({"sizes": [1, 2], "rate": 1, "names": ["é"]}, Inner, "x.json")
    # An integer stays one: a config is compared with what it was.
    assert repr(rated.rate) == "1" and rated.names == ("é",)
    assert fitting([[1, 2], [3]], list[list[int]]) == [[1, 2], [3]]
    assert fitting([[1, 2], 3], list[list[int]]) is None


@each_row(
    ("value", "kind", "told"),
    [
        ([], Outer, "Expected `object`, got `array`"),
        ({"inner": {}}, Outer, "missing required field `sizes` - at `$.inner`"),
        (
            {**GOOD, "counts": {"a": True}},
            Outer,
            "Expected `int`, got `bool` - at `$.counts",
        ),
        ({**GOOD, "inner": {"sizes": [1, 2, 3]}}, Outer, "length 2, got 3"),
        ({"sizes": [1, "2"]}, Inner, "Expected `int`, got `str` - at `$.sizes[1]`"),
        ({"sizes": [1, 2], "kind": "c" * 9999}, Inner, "ccc... - at `$.kind`"),
        ({"sizes": [1, 2], "\ud800": 1}, Inner, "surrogates not allowed"),
        (
            {**GOOD, "inner": {"sizes": [1, 2], "ratte": 1}},
            Outer,
            "'ratte' is unknown to this version of jaxtrain and its plug-ins; did you "
            "mean 'rate'? - at `$.inner`",
        ),
        ({"inner": {"sizes": [-1, 2]}}, Outer, "expected 0 or more - at `$.inner`"),
    ],
)
def test_other_values_are_told(value: Any, kind: type, told: str):
    with pytest.raises(UserError) as caught:
        convert(value, kind, "x.json")
    message = str(caught.value)
    assert message.startswith("x.json: ") and len(message) < 700
    assert all(part in message for part in told.split("..."))


def test_json_is_read_as_python_reads_it():
    for text in (
        "[" * MAX_DEPTH + "]" * MAX_DEPTH,
        '{"a": [1, -2.5e300, null, "NaN", "[["], "\\ud800": "\\ud800"}',
        f"{[2**63 - 1, 1 - 2**63]}",
        "[]",
    ):
        assert parse(text) == parse(text.encode()) == json.loads(text)
    infinite, large = parse("[-Infinity, 18446744073709551616]", nan=True)
    assert infinite == float("-inf") and large == 2**64


@each_row(
    ("content", "told"),
    [
        (b"{", "cannot be read .*: mend it"),
        (b'{"a": "\xff"}', "cannot be read .*utf-8.*: mend it"),
        (b'{"a": 9223372036854775808}', "beyond the limit"),
        (b'{"a":' * 64 + b"[]" + b"}" * 64, "nested more than 64 levels"),
        (b"[1]", "is not a JSON object"),
        (b'{"a": 1' + b"0" * 5000 + b"}", "cannot be read"),
    ],
)
def test_what_is_no_json_is_told(content: bytes, told: str, tmp_path: Path):
    path = tmp_path / "x.json"
    assert read_of_run(path, dict[str, Any]) is None
    path.write_bytes(content)
    with pytest.raises(UserError, match=told) as caught:
        read_of_run(path, dict[str, Any], advice="mend it")
    assert str(path) in str(caught.value) and len(str(caught.value)) < 500


def test_a_digest_is_of_the_values_and_not_of_their_form(tmp_path: Path):
    path, values = tmp_path / "x.json", {"b": [1, 2.5, None], "a": {"é": "\ud800"}}
    written = with_digest(values)
    assert list(written) == ["b", "a", "sha256"]
    path.write_text(json.dumps(written, indent=3, sort_keys=True))
    assert read_of_run(path, dict[str, Any]) == values
    for other in ({**written, "b": [1, 2.5]}, {**written, "c": 1}, {**written, "b": 1}):
        path.write_text(json.dumps(other))
        with pytest.raises(UserError, match=r"does not match the digest.*mend it"):
            read_of_run(path, dict[str, Any], advice="mend it")
    # What somebody does who has read that message.
    del written["sha256"]
    path.write_text(json.dumps({**written, "b": 1}))
    assert read_of_run(path, dict[str, Any]) == {**values, "b": 1}
