"""JSON files that are read back: a digest finds damage, one message tells of it."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

import pytest

from jaxtrain.errors import UserError
from jaxtrain.json_files.parse import MAX_DEPTH, parse
from jaxtrain.json_files.read import read_json, with_digest
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


@dataclass(frozen=True)
class Defaults:
    options: dict[str, bool | int | str] = field(default_factory=dict)


GOOD = {"inner": {"sizes": [1, 2]}, "counts": {"train": 3}}


def test_values_get_their_types():
    found = convert({**GOOD, "more": [1]}, Outer, "x.json")
    expected = {"inner": Inner(sizes=(1, 2)), "counts": {"train": 3}, "more": [1]}
    assert found == expected
    rated = convert({"sizes": [1, 2], "rate": 1, "names": ["é"]}, Inner, "x.json")
    # An integer stays one: a config is compared with what it was.
    assert repr(rated.rate) == "1" and rated.names == ("é",)
    assert convert({"options": {"a": True, "b": 2}}, Defaults, "x") == Defaults(
        {"a": True, "b": 2}
    )
    assert fitting([[1, 2], [3]], list[list[int]]) == [[1, 2], [3]]
    assert fitting([[1, 2], 3], list[list[int]]) is None


@each_row(
    ("value", "kind", "told"),
    [
        ([], Outer, "x.json: expected an object, found a list of 0"),
        ({"inner": {}}, Outer, "x.json: counts is missing"),
        (
            {**GOOD, "counts": {"train": True}},
            Outer,
            "counts.train: expected a whole number, found true",
        ),
        (
            {**GOOD, "done": 1},
            Outer,
            "x.json: done: expected true or false, found 1",
        ),
        (
            {**GOOD, "inner": {"sizes": [1, 2, 3]}},
            Outer,
            "inner.sizes: expected a list of 2, found a list of 3",
        ),
        (
            {"sizes": [1, "2"]},
            Inner,
            r"sizes\[1\]: expected a whole number, found '2'",
        ),
        (
            {"sizes": [1, 2], "rate": "1"},
            Inner,
            "rate: expected a finite number or null, found '1'",
        ),
        ({"sizes": [1, 2], "rate": 10**400}, Inner, "found a very large number"),
        ({"sizes": [1, 2**63]}, Inner, r"sizes\[1\]: expected a whole number"),
        ({"sizes": [1, 2], "rate": float("inf")}, Inner, "rate: .* found inf"),
        ({"sizes": [1, 2], "kind": "c"}, Inner, "kind: expected 'a' or 'b', found 'c'"),
        (
            {"sizes": [1, 2], "names": ["x", 1]},
            Inner,
            r"names\[1\]: expected a text, found 1",
        ),
        (
            {"sizes": [1, 2], "ratte": 1},
            Inner,
            "ratte: unknown to this version of jaxtrain; did you mean 'rate'",
        ),
        ({"sizes": [-1, 2]}, Inner, "x.json: sizes = .-1, 2., expected 0 or more"),
        ({"sizes": "x" * 1000}, Inner, "expected a list, found 'x{59}...$"),
    ],
)
def test_other_values_are_told(value: Any, kind: type, told: str):
    with pytest.raises(UserError, match=told):
        convert(value, kind, "x.json")


def test_what_is_json_is_read_as_python_reads_it():
    deepest = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    for text in (
        deepest,
        '{"a": [1, -2.5e300, null, "NaN", "[["]}',
        '"[[["',
        "1",
        "[]",
    ):
        assert parse(text) == parse(text.encode()) == json.loads(text)
    with pytest.raises(ValueError, match="more than 64 deep"):
        parse(f"[{deepest}]")


@each_row(
    ("content", "told"),
    [
        (b"{", "cannot be read .*: mend it"),
        (b'{"a": "\xff"}', "cannot be read .*utf-8.*: mend it"),
        (b'{"a": NaN}', "NaN is no JSON"),
        (b'{"a":' + b"[" * 100_000, "cannot be read"),
        (b"[1]", "it is no JSON object"),
        (b'{"a": 1' + b"0" * 5000 + b"}", "cannot be read"),
    ],
)
def test_what_is_no_json_is_told(content: bytes, told: str, tmp_path: Path):
    path = tmp_path / "x.json"
    assert read_json(path, dict[str, Any]) is None
    path.write_bytes(content)
    with pytest.raises(UserError, match=told) as caught:
        read_json(path, dict[str, Any], advice="mend it")
    assert str(path) in str(caught.value) and len(str(caught.value)) < 500


def test_a_digest_is_of_the_values_and_not_of_their_form(tmp_path: Path):
    path, values = tmp_path / "x.json", {"b": [1, 2.5, None], "a": {"é": "\ud800"}}
    written = with_digest(values)
    assert list(written) == ["b", "a", "sha256"]
    path.write_text(json.dumps(written, indent=3, sort_keys=True))
    assert read_json(path, dict[str, Any]) == values
    for other in ({**written, "b": [1, 2.5]}, {**written, "c": 1}, {**written, "b": 1}):
        path.write_text(json.dumps(other))
        with pytest.raises(UserError, match=r"is not what was written.*mend it"):
            read_json(path, dict[str, Any], advice="mend it")
    # What somebody does who has read that message.
    del written["sha256"]
    path.write_text(json.dumps({**written, "b": 1}))
    assert read_json(path, dict[str, Any]) == {**values, "b": 1}
