"""How the processes of a run meet, whoever else calls at the coordinator's port."""

import contextlib
import json
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from jaxtrain.errors import UserError
from jaxtrain.processes import greeting, reception, rendezvous
from jaxtrain.processes.distributed import own_host
from jaxtrain.processes.greeting import PURPOSES, GreetedSocket
from jaxtrain.processes.reception import Reception

TOKEN = b"a token of this run"
NEVER = 300.0
HELLO = {"process": 1, "of": 2, "purpose": "peers", "nonce": "0" * 32, "token": False}


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def meet_at(
    address: str, num: int, index: int, timeout: float, token: bytes | None = None
) -> str:
    """Meet, hang up, and return the address of this process that the others see."""
    met = rendezvous.meet(address, num, index, timeout, token)
    assert tuple(met) == PURPOSES
    for connections in met.values():
        assert sorted(connections) == (list(range(1, num)) if index == 0 else [0])
    host = own_host(met["peers"].values())
    for connections in met.values():
        for connection in connections.values():
            assert connection.gettimeout() is None
            connection.close()
    return f"{host}:{address.rpartition(':')[2]}"


class Meeting:
    """Processes that meet in threads of their own; each comes to an outcome."""

    def __init__(self, timeout: float = NEVER):
        self.address, self.timeout = free_address(), timeout
        self.outcomes: list[str] = []
        self._threads: list[threading.Thread] = []

    def add(self, index: int, num: int, token: bytes | None = None) -> None:
        place = len(self.outcomes)
        self.outcomes.append("")

        def run() -> None:
            try:
                came = meet_at(self.address, num, index, self.timeout, token)
            except UserError as error:
                came = str(error)
            self.outcomes[place] = came.replace(self.address, "ADDRESS")

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    def connect(self) -> socket.socket:
        """Connect to process 0, once it listens."""
        while True:
            try:
                return socket.create_connection(rendezvous.split(self.address))
            except ConnectionRefusedError:
                assert self._threads[0].is_alive()
                self._threads[0].join(0.02)

    def end(self) -> list[str]:
        for thread in self._threads:
            thread.join()
        return self.outcomes


def meet(
    *processes: tuple[int, int], timeout: float = NEVER, token: bytes | None = None
) -> list[str]:
    """Let processes meet, (number, of how many) each; return what each came to."""
    meeting = Meeting(timeout)
    for index, num in processes:
        meeting.add(index, num, token)
    return meeting.end()


@pytest.mark.parametrize("token", [None, TOKEN])
def test_processes_meet_at_the_address_alone(token: bytes | None):
    """Loopback stays loopback: the run is open to nobody else."""
    assert meet((0, 3), (1, 3), (2, 3), token=token) == ["ADDRESS"] * 3


def test_many_processes_meet():
    assert meet(*((index, 40) for index in range(40)), token=TOKEN) == ["ADDRESS"] * 40


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


EndWait = Callable[[], None]


@pytest.fixture
def end_wait(monkeypatch: pytest.MonkeyPatch) -> EndWait:
    """Let the wait of process 0 be over at once, however long it was to be."""
    passed = [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed[0])
    monkeypatch.setattr(reception, "time", clock)

    def end() -> None:
        passed[0] = NEVER

    return end


@pytest.fixture
def admitted(monkeypatch: pytest.MonkeyPatch) -> "queue.SimpleQueue[GreetedSocket]":
    """The calls that process 0 has admitted to the run."""
    calls: queue.SimpleQueue[GreetedSocket] = queue.SimpleQueue()
    admit = Reception._admit

    def tell(self: Reception, call: GreetedSocket) -> None:
        admit(self, call)
        calls.put(call)

    monkeypatch.setattr(Reception, "_admit", tell)
    return calls


def test_missing_process_is_named_to_all(
    end_wait: EndWait, admitted: "queue.SimpleQueue[GreetedSocket]"
):
    meeting = Meeting()
    for index in (0, 2):
        meeting.add(index, 4)
    for _ in PURPOSES:
        admitted.get(timeout=NEVER)
    end_wait()
    for outcome in meeting.end():
        assert "for process 1, 3: 2 of 4 processes came" in outcome


def test_processes_that_do_not_fit_together_are_told():
    for outcome in meet((0, 3), (1, 2)):
        assert "process 1 was started with --num-processes 2, process 0 with 3" in (
            outcome
        )
    for outcome in meet((0, 4), (1, 4), (1, 4)):
        assert "two processes were started as --process-id 1" in outcome


JUNK = [
    b"",
    b"GET / HTTP/1.0\r\n\r\n\n",
    b"x" * 10_000,
    json.dumps({**HELLO, "process": 10**30}).encode() + b"\n",
    # A hello that is right, and no proof after it.
    json.dumps(HELLO).encode() + b'\n{"go": "' + b"0" * 64 + b'"}\n',
]


@pytest.mark.parametrize("token", [None, TOKEN])
def test_callers_that_are_none_of_ours_are_passed_over(token: bytes | None):
    meeting = Meeting()
    meeting.add(0, 2, token)
    for words in JUNK:
        with meeting.connect() as connection, contextlib.suppress(OSError):
            connection.sendall(words)
    meeting.add(1, 2, token)
    assert meeting.end() == ["ADDRESS"] * 2


def test_silent_callers_hold_up_nobody(monkeypatch: pytest.MonkeyPatch):
    """They are greeted side by side: the others meet while these are waited for."""
    # One after the other, each would take longer than the others wait.
    monkeypatch.setattr(greeting, "PATIENCE", 10 * NEVER)
    meeting = Meeting()
    meeting.add(0, 2, TOKEN)
    with contextlib.ExitStack() as stack:
        for words in (b"", b"", b"{", b'{"process": '):
            stack.enter_context(meeting.connect()).sendall(words)
        meeting.add(1, 2, TOKEN)
        assert meeting.end() == ["ADDRESS"] * 2


def test_silent_callers_do_not_put_off_the_end_of_the_wait(
    end_wait: EndWait, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(greeting, "PATIENCE", 10 * NEVER)
    meeting = Meeting()
    meeting.add(0, 2, TOKEN)
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(meeting.connect())
        end_wait()
        (outcome,) = meeting.end()
    assert "waited 300 s (--init-timeout) at ADDRESS for process 1" in outcome


def test_more_strangers_than_are_greeted(monkeypatch: pytest.MonkeyPatch):
    """Those that have been silent the longest make room."""
    monkeypatch.setattr(reception, "MAX_STRANGERS", 3)
    meeting = Meeting()
    meeting.add(0, 2, TOKEN)
    with contextlib.ExitStack() as stack:
        strangers = [stack.enter_context(meeting.connect()) for _ in range(12)]
        # Two more connections are expected, of process 1: five are greeted at once.
        for stranger in strangers[:7]:
            stranger.settimeout(NEVER)
            assert stranger.recv(1) == b""
        meeting.add(1, 2, TOKEN)
        assert meeting.end() == ["ADDRESS"] * 2


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> "queue.SimpleQueue[str]":
    """What process 0 tells while it waits."""
    told: queue.SimpleQueue[str] = queue.SimpleQueue()
    monkeypatch.setattr(reception, "tell", told.put)
    return told


@pytest.mark.parametrize("other", [None, b"a token of another run"])
def test_callers_without_the_token_end_nothing(
    other: bytes | None, warnings: "queue.SimpleQueue[str]"
):
    """Whatever they claim to be; they are told, and so is who sees process 0."""
    meeting = Meeting()
    meeting.add(0, 2, TOKEN)
    strangers = Meeting()
    strangers.address = meeting.address
    meeting.connect().close()
    for index, num in ((1, 2), (1, 3), (7, 9), (1, 2)):
        strangers.add(index, num, other)
    told = strangers.end()
    assert all(greeting.TOKEN_VARIABLE in outcome for outcome in told)
    warned = warnings.get(timeout=NEVER)
    assert warned.startswith("warning: refused a caller at the coordinator's port: ")
    assert greeting.TOKEN_VARIABLE in warned
    meeting.add(1, 2, TOKEN)
    assert meeting.end() == ["ADDRESS"] * 2
    assert warnings.empty()


def test_missing_token_of_a_process_is_named_at_the_end_of_the_wait(
    end_wait: EndWait, warnings: "queue.SimpleQueue[str]"
):
    meeting = Meeting()
    meeting.add(0, 2, TOKEN)
    meeting.add(1, 2, None)
    warnings.get(timeout=NEVER)
    end_wait()
    zero, one = meeting.end()
    assert "for process 1: 1 of 2 processes came. Refused: process 0 has" in zero
    assert "process 1 has not: give all processes of the run the same" in one


def test_process_that_has_ended_is_missing_at_the_end_of_the_wait(
    end_wait: EndWait, admitted: "queue.SimpleQueue[GreetedSocket]"
):
    meeting = Meeting()
    meeting.add(0, 3, TOKEN)
    until = time.monotonic() + NEVER
    for purpose in PURPOSES:
        call = greeting.call(meeting.connect(), 1, 3, purpose, TOKEN, until)
        there = admitted.get(timeout=NEVER)
        call.connection.close()
        assert there.gone(NEVER)
    end_wait()
    assert "for process 1, 2: 1 of 3 processes came" in meeting.end()[0]


@pytest.mark.parametrize("purposes", [PURPOSES[:1], PURPOSES])
def test_process_that_ended_while_it_waited_may_come_again(
    purposes: tuple[str, ...],
    admitted: "queue.SimpleQueue[GreetedSocket]",
    monkeypatch: pytest.MonkeyPatch,
):
    """Also where process 0 sees the new calls before the end of the old ones."""
    monkeypatch.setattr(reception, "ENDED_SECONDS", NEVER)
    meeting = Meeting()
    meeting.add(0, 3, TOKEN)
    calls: list[GreetedSocket] = []
    for purpose in purposes:
        until = time.monotonic() + NEVER
        connection = meeting.connect()
        calls.append(greeting.call(connection, 1, 3, purpose, TOKEN, until))
        admitted.get(timeout=NEVER)  # Before it calls again.
    for index in (1, 2):
        meeting.add(index, 3, TOKEN)
    for call in calls:
        call.connection.close()
    assert meeting.end() == ["ADDRESS"] * 3


def test_a_refusal_may_come_on_any_connection(listener: socket.socket):
    """Process 0 ends those that it has not come to when it finds what is wrong."""
    host, port = listener.getsockname()
    until, outcomes = time.monotonic() + NEVER, list[str]()

    def call() -> None:
        with pytest.raises(UserError) as refused:
            rendezvous.meet(f"{host}:{port}", 2, 1, NEVER, TOKEN)
        outcomes.append(str(refused.value))

    thread = threading.Thread(target=call)
    thread.start()
    found = [greeting.answer(listener.accept()[0], TOKEN, until) for _ in PURPOSES]
    listener.close()
    found[0].connection.close()
    found[1].refuse("there are two of you")
    thread.join()
    assert outcomes == ["there are two of you"]


def test_nobody_listens_once_the_processes_have_met():
    meeting = Meeting()
    meeting.add(0, 2, TOKEN)
    meeting.add(1, 2, TOKEN)
    assert meeting.end() == ["ADDRESS"] * 2
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(rendezvous.split(meeting.address))


def test_address_in_use_is_named():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(UserError, match=f"127.0.0.1:{port} .*in use.*free port"):
            rendezvous.meet(f"127.0.0.1:{port}", 2, 0, 1)


@pytest.mark.parametrize("index", [0, 1])
def test_host_of_the_coordinator_that_does_not_resolve_is_named(
    index: int, monkeypatch: pytest.MonkeyPatch
):
    """Once the wait is over: its name may appear later than the process."""

    def fail(host: str, *args: object, **kwargs: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds + 3.0  # As on a machine that stalls.

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    monkeypatch.setattr(rendezvous, "time", clock)
    named = r"host no-such-node does not resolve .*Name or service.*or /etc/hosts"
    with pytest.raises(UserError, match=named):
        rendezvous.meet("no-such-node:12345", 2, index, 5.0, TOKEN)
    assert now[0] >= 5.0
