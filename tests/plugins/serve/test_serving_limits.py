"""What one client of the server can hold: connections, places, time, decoders."""

import asyncio
import http.client
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from jaxtrain.data.files import UnreadableError
from jaxtrain.plugins.serve import app
from jaxtrain.plugins.serve.connections import Connections, client_of
from jaxtrain.plugins.serve.decoders import DecoderPool
from jaxtrain.plugins.serve.limits import most_connections
from tests.helpers.decoding import obey
from tests.helpers.rows import each_row
from tests.helpers.waiting import PATIENCE, wait_until
from tests.plugins.serve.running import LIMITS as QUICK, OneClass, Running, png

HALF_A_LINE = b"POST /pre"
NO_BODY = b"POST /predict HTTP/1.1\r\nhost: here\r\ncontent-length: 5000\r\n\r\n"
LIMITS = replace(QUICK, grace_seconds=PATIENCE)


def start(**options: Any) -> Running:
    model: Any = OneClass()
    return Running(model, replace(LIMITS, **options))


def connect(
    server: Running, sent: bytes = b"", source: str = "127.0.0.1"
) -> socket.socket:
    opened = socket.create_connection(
        ("127.0.0.1", server.port), PATIENCE, source_address=(source, 0)
    )
    opened.sendall(sent)
    return opened


def answer(connection: socket.socket) -> bytes:
    """Return all that comes until the server closes the connection."""
    with connection, connection.makefile("rb") as file:
        return file.read()


def status(server: Running, source: str = "127.0.0.1", image: bytes = b"") -> int:
    """Return the status that a client with this address gets, also for an image."""
    connection = http.client.HTTPConnection(
        "127.0.0.1", server.port, PATIENCE, source_address=(source, 0)
    )
    with closing(connection):
        # One that is refused is closed, perhaps before it is read.
        with suppress(OSError):
            if image:
                connection.request("POST", "/predict", body=image)
            else:
                connection.request("GET", "/health")
        return connection.getresponse().status


@pytest.fixture(scope="module")
def impatient() -> Iterator[Running]:
    with start(grace_seconds=0.2) as server:
        yield server


@pytest.mark.parametrize("sent", [HALF_A_LINE, NO_BODY + b"a part"])
def test_a_request_that_does_not_come_is_ended(impatient: Running, sent: bytes):
    connections = [connect(impatient, sent) for _ in range(5)]
    for connection in connections:
        assert answer(connection).startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert health(impatient)["num_waiting"] == 0


def health(impatient: Running) -> dict[str, Any]:
    """Ask until the server has not ended our own request, which may come slowly too."""
    status, told = 408, {}
    while status == 408:
        status, told = impatient.ask(None, "/health")
    return told


def test_a_request_behind_another_is_ended_too(impatient: Running):
    ask, found = b"GET /health HTTP/1.1\r\nhost: here\r\n\r\n", b""

    def is_answered() -> bool:
        nonlocal found
        found = answer(connect(impatient, ask + ask + HALF_A_LINE))
        return found.startswith(b"HTTP/1.1 200 OK\r\n")

    wait_until(is_answered)  # If we stall before we ask, we are ended, too.
    assert found.count(b"HTTP/1.1 200 OK\r\n") == 2
    assert found.count(b"HTTP/1.1 408 Request Timeout\r\n") == 1


class Clock:
    """In the place of an event loop: its time goes on when it is told to."""

    def __init__(self) -> None:
        self.now, self.calls = 0.0, list[tuple[float, Callable[[], None]]]()

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, call: Callable[[], None]) -> Any:
        entry = (self.now + delay, call)
        self.calls.append(entry)
        # A handle, of which `cancel` alone is used.
        handle = lambda: None  # noqa: E731
        handle.cancel = lambda: entry in self.calls and self.calls.remove(entry)  # type: ignore[attr-defined]
        return handle

    def create_task(self, task: Any, **_: Any) -> Any:
        task.close()
        return asyncio.Future(loop=self)  # type: ignore[arg-type]

    def call_soon(self, *_: Any, **__: Any) -> None:
        pass

    def get_debug(self) -> bool:
        return False

    def go_on(self, seconds: float) -> None:
        self.now += seconds
        for due, call in [c for c in self.calls if c[0] <= self.now]:
            self.calls.remove((due, call))
            call()


class Wire(asyncio.Transport):
    """A transport that remembers what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.closed = b"", False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


@pytest.mark.parametrize(("part", "kept"), [(101, True), (99, False)])
def test_a_body_may_take_long_at_some_rate(part: int, kept: bool):
    """Of 10 seconds, and one for each 100 bytes."""
    limits = replace(LIMITS, grace_seconds=10, bytes_per_second=100)
    clock, wire = Clock(), Wire()
    config = uvicorn.Config(lambda *_: None)  # type: ignore[arg-type]
    protocol: Any = Connections(limits).protocol(
        config=config, server_state=ServerState(), app_state={}, _loop=clock
    )
    protocol.connection_made(wire)
    protocol.data_received(NO_BODY.replace(b"5000", b"500000"))
    for _ in range(3000):
        protocol.cycle.body.clear()  # As the application takes it.
        protocol.data_received(bytes(part))
        clock.go_on(1)
    assert wire.closed is not kept
    assert wire.written.startswith(b"" if kept else b"HTTP/1.1 408")


def test_a_client_loses_what_has_stalled_before_others_wait():
    with start(max_per_client=3, stalled_seconds=0) as server:
        for sent in (b"", HALF_A_LINE, NO_BODY):
            stalled = [connect(server, sent) for _ in range(3)]
            assert status(server) == 200
            # One of them made way.
            ended, _, _ = select.select(stalled, [], [], PATIENCE)
            assert len(ended) == 1
            assert answer(ended[0]).startswith(b"HTTP/1.1 408 Request Timeout\r\n")
            for connection in stalled:
                connection.close()


def test_a_client_has_so_many_connections_and_others_are_answered():
    with start(max_per_client=3, stalled_seconds=PATIENCE) as server:
        with ExitStack() as kept:
            for _ in range(3):
                kept.enter_context(connect(server, NO_BODY))
            refused = answer(connect(server))
            assert refused.startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
            assert b'{"error": "too many connections are open' in refused
            assert status(server, "127.0.0.2") == 200
        # A place is given back with its connection.
        wait_until(lambda: status(server) == 200)


def test_all_clients_have_so_many_connections():
    with start(max_open=4, stalled_seconds=PATIENCE) as server, ExitStack() as kept:
        for i in range(4):
            kept.enter_context(connect(server, NO_BODY, f"127.0.0.{i + 1}"))
        refused = answer(connect(server, source="127.0.0.5"))
        assert refused.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")


@pytest.mark.slow
def test_hundreds_of_connections_do_not_keep_others_out():
    """With the limits of the command, but without an end to a request."""
    with (
        start(
            max_per_client=256, max_open=most_connections(), max_waiting=512
        ) as server,
        ExitStack() as kept,
    ):
        for _ in range(512):
            connection = connect(server)
            kept.enter_context(connection)
            # It may have been refused already.
            with suppress(OSError):
                connection.sendall(NO_BODY)
        assert status(server, "127.0.0.2", png(0)) == 200
        # Once what holds its own places has stalled for a second.
        wait_until(lambda: status(server, image=png(0)) == 200)


@each_row(
    ("host", "client"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_a_network_of_ipv6_is_one_client(host: str, client: str):
    assert client_of(host) == client


# --- decoders ------------------------------------------------------------------------


@pytest.mark.slow
def test_a_decoder_that_does_not_end_is_ended_and_replaced():
    async def ask() -> None:
        pool = DecoderPool(obey, (8, 8, 1), cpu_seconds=0.2, num=1)
        with pool.running():
            told = r"takes more than 0\.2 seconds of CPU time"
            with pytest.raises(UnreadableError, match=told):
                await pool.decode(b"spin")
            assert (await pool.decode(b"good")).shape == (8, 8, 1)
            with pytest.raises(UnreadableError, match="exited with code 3"):
                await pool.decode(b"die")

    asyncio.run(ask())


@pytest.mark.slow
def test_a_server_ends_whatever_is_decoded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(app, "to_sized_pixels", obey)
    server = start(timeout_seconds=1, decode_seconds=10**6)
    status, told = server.ask(b"spin")
    assert (status, told["error"]) == (503, "no response within 1 seconds")
    ended = threading.Thread(target=server.stop, daemon=True)
    ended.start()
    ended.join(PATIENCE)
    assert not ended.is_alive()
