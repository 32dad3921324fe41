"""The hub of process 0 outlives what any process sends, and passes no nonsense on."""

import contextlib
import json
import socket
from collections.abc import Iterator

import pytest

from jaxtrain.processes import hub, messages
from jaxtrain.processes.hub import Hub, Links
from jaxtrain.processes.messages import FROM_HUB
from tests.helpers.rows import each_row
from tests.helpers.waiting import PATIENCE

HEARTBEAT = 300.0


@contextlib.contextmanager
def meet() -> Iterator[list[socket.socket]]:
    """The ends of processes 0, 1 and 2, whose other ends a hub has."""
    pairs = [socket.socketpair() for _ in range(3)]
    opened = Hub({i: its for i, (_, its) in enumerate(pairs)}, HEARTBEAT)
    ours = [mine for mine, _ in pairs]
    for end in ours:
        end.settimeout(PATIENCE)
    yield ours
    for end in ours:
        end.close()
    opened.join(PATIENCE)
    assert not opened._thread.is_alive()


@pytest.fixture
def ends() -> Iterator[list[socket.socket]]:
    with meet() as found:
        yield found


def read(end: socket.socket) -> dict:
    """Return the next message but beats."""
    with end.makefile("rb") as file:
        for line in file:
            message = json.loads(line)
            if message["kind"] != "beat":
                return message
    return {}


# `test_messages.py` has what is no message at all.
JUNK = [
    b"junk\n",
    b'{"kind": "beat", "index": 3}\n',
    b'{"kind": "end", "code": 0, "message": "finished"}\n',
    b'{"kind": "gather", "value": 1}\n' * 20,
]


@each_row("said", JUNK)
def test_a_process_that_sends_junk_is_lost(said: bytes):
    """The others are told which, as of one that ended: they start again with 75."""
    with meet() as ends:
        ends[2].sendall(said)
        for end in ends[:2]:
            message = read(end)
            assert (message["kind"], message["process"]) == ("lost", 2)
            assert message["how"].startswith("sent what no process of a run sends (")


def test_a_line_without_end_is_not_kept(
    ends: list[socket.socket], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(messages, "MAX_BYTES", 100_000)
    with contextlib.suppress(BrokenPipeError):  # The hub may hang up in the midst.
        ends[1].sendall(b"x" * 200_000)
    assert "longer than 100000" in read(ends[0])["how"]


def test_messages_that_come_in_parts_or_together_are_read(ends: list[socket.socket]):
    whole = b'{"kind": "gather", "value": "%s"}\n' % (b"x" * 100_000)
    ends[0].sendall(whole[:7])
    ends[1].sendall(b'{"kind": "beat"}\n{"kind": "gather", "value": 1}\n{"kind": "b')
    ends[2].sendall(b'{"kind": "gather", "value": null}\n')
    ends[0].sendall(whole[7:])
    for end in ends:
        values = ["x" * 100_000, 1, None]
        assert read(end) == {"kind": "gathered", "values": values}


def test_junk_from_process_0_is_its_loss():
    """A process takes what the hub sends, and nothing else."""
    mine, its = socket.socketpair()
    with its:
        found = Links({0: mine}, FROM_HUB, HEARTBEAT)
        its.sendall(b'{"kind": "ask"}\n{"kind": "signal", "signum": 15}\n')
        told = found.poll()
        while len(told) < 2:
            told += found.poll()
    assert [index for index, _ in told] == [0, 0]
    assert told[0][1] == {"kind": "ask"}
    assert told[1][1]["kind"] == "lost"
    assert told[1][1]["how"].startswith(hub.JUNK)
    assert len(found) == 0
