"""Messages between processes: lines of JSON, each checked before anything acts on it.

Whoever reaches a port can send bytes to it. A line that is longer than the limit, is
not JSON, or has other fields or types than its kind, raises `MessageError`.
"""

import json
import signal
from collections.abc import Callable, Mapping
from typing import Any

# Longest line in bytes. The longest that a run sends name unreadable images.
MAX_BYTES = 64 << 20
# Deepest nesting of a value. `json` itself fails at a depth that depends on the caller.
MAX_DEPTH = 64
MAX_NUMBER = 2**53

Check = Callable[[Any], bool]
Fields = Mapping[str, Check]


class MessageError(ValueError):
    """A message that the receiver does not expect."""


def encode(values: Mapping[str, Any]) -> bytes:
    """Return a message as the line that is sent."""
    return json.dumps(values).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """Read a JSON object, or raise MessageError."""
    try:
        values = json.loads(line.decode())
    except (ValueError, RecursionError):
        raise MessageError("not JSON") from None
    if not isinstance(values, dict):
        raise MessageError("not a JSON object")
    return values


def check(values: Mapping[str, Any], fields: Fields) -> None:
    """Raise MessageError if a field is missing, unknown, of a wrong type or range."""
    if values.keys() != fields.keys():
        raise MessageError("other fields than expected")
    for name, holds in fields.items():
        if not holds(values[name]):
            raise MessageError(f"a wrong value of {name!r}")


def parse(line: bytes, kinds: Mapping[str, Fields]) -> dict[str, Any]:
    """Read a message of one of several kinds, or raise MessageError.

    Args:
      kinds: The fields of each kind, without `kind` itself.
    """
    values = decode(line)
    kind = values.get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        raise MessageError("a message of an unknown kind")
    check({k: v for k, v in values.items() if k != "kind"}, kinds[kind])
    return values


def whole(low: int, high: int = MAX_NUMBER) -> Check:
    """Return a check for integers from `low` to `high`, both included."""
    # A bool is an `int`, too.
    return lambda value: type(value) is int and low <= value <= high


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_value(value: Any, depth: int = MAX_DEPTH) -> bool:
    """Whether a JSON value is nested no deeper than `depth`."""
    inner = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list):
        return True
    return depth > 0 and all(is_value(one, depth - 1) for one in inner)


def _is_list(value: Any) -> bool:
    # The hub wraps the values of all processes in a list.
    return isinstance(value, list) and is_value(value, MAX_DEPTH + 1)


def _is_signal(value: Any) -> bool:
    known = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    return type(value) is int and value in known


_END: Fields = {"code": whole(1, 255), "message": is_text}

# What a process sends to the hub of process 0, and what the hub sends to a process.
TO_HUB: Mapping[str, Fields] = {
    "beat": {},
    "signal": {"signum": _is_signal},
    "asked": {"times": whole(0)},
    "gather": {"value": is_value},
    "report": {"value": is_value},
    "done": {},
    "end": _END,
}
FROM_HUB: Mapping[str, Fields] = {
    "beat": {},
    "ask": {},
    "stop": {"at": whole(0), "signum": _is_signal},
    "gathered": {"values": _is_list},
    "reported": {"value": is_value},
    "done": {},
    "end": {"process": whole(0), **_END},
    "lost": {"process": whole(0), "how": is_text},
}
