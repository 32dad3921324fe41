"""What a process takes from another is checked before anything acts on it."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtrain.processes import messages
from jaxtrain.processes.messages import FROM_HUB, TO_HUB, MessageError
from tests.helpers.rows import each_row

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=4,
)
KINDS = sorted({*TO_HUB, *FROM_HUB})

JUNK = [
    b"",
    b"GET / HTTP/1.0\r",
    b"\xff\xfe{\x00}\x00",
    b"[" * 4000,
    b"[" * 200_000,
    b'{"a": ' * 4000,
    b"9" * 5000,
    b"[]",
    b"{}",
    b"null",
    b"Infinity",
    b'{"kind": null}',
    b'{"kind": []}',
    b'{"kind": "beat", "index": 0}',
    b'{"kind": "lost", "how": "so"}',
    b'{"kind": "stop", "at": 1, "signum": 15}',
    b'{"kind": "signal"}',
    b'{"kind": "signal", "signum": 9}',
    b'{"kind": "signal", "signum": 1e999}',
    b'{"kind": "signal", "signum": true}',
    b'{"kind": "asked", "times": -1}',
    b'{"kind": "asked", "times": NaN}',
    b'{"kind": "asked", "times": 1' + b"0" * 400 + b"}",
    b'{"kind": "gather"}',
    b'{"kind": "gather", "value": ' + b"[" * 100 + b"]" * 100 + b"}",
    b'{"kind": "done", "code": 0}',
    b'{"kind": "end", "code": 0, "message": ""}',
    b'{"kind": "end", "code": 256, "message": ""}',
    b'{"kind": "end", "code": 2.0, "message": ""}',
    b'{"kind": "end", "code": 2, "message": null}',
    b'{"kind": "end", "code": 2, "message": "", "process": 0}',
]


@each_row("line", JUNK)
def test_junk_is_no_message(line: bytes):
    with pytest.raises(MessageError):
        messages.parse(line, TO_HUB)


@given(st.binary() | VALUES.map(lambda value: json.dumps(value).encode()))
@settings(max_examples=50, deadline=None)
def test_any_bytes_are_a_message_or_refused(line: bytes):
    try:
        values = messages.parse(line, TO_HUB)
    except MessageError:
        return
    assert values["kind"] in TO_HUB


@given(st.sampled_from(KINDS), st.dictionaries(st.text(), VALUES), VALUES)
@settings(max_examples=50, deadline=None)
def test_fields_of_a_message_are_those_of_its_kind(kind: str, more: dict, value):
    for kinds in (TO_HUB, FROM_HUB):
        fields = dict.fromkeys(kinds.get(kind, ()), value)
        line = json.dumps({**more, **fields, "kind": kind}).encode()
        try:
            found = messages.parse(line, kinds)
        except MessageError:
            continue
        assert found.keys() == {"kind", *kinds[kind]}


@each_row(
    ("kinds", "message"),
    [
        (TO_HUB, {"kind": "signal", "signum": 15}),
        (TO_HUB, {"kind": "gather", "value": {"loss": math.inf, "names": ["ä\n"]}}),
        (TO_HUB, {"kind": "end", "code": 143, "message": "stopped"}),
        (FROM_HUB, {"kind": "stop", "at": 7, "signum": 2}),
        (FROM_HUB, {"kind": "gathered", "values": [None, {"a": [1.5]}]}),
        (FROM_HUB, {"kind": "lost", "process": 1, "how": "ended without a word"}),
    ],
)
def test_messages_of_a_run_are_read(kinds, message: dict):
    line = messages.encode(message)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert messages.parse(line.removesuffix(b"\n"), kinds) == message
