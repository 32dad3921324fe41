"""A process and process 0 prove to each other that they hold the token of the run."""

import contextlib
import hmac
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtrain.errors import UserError
from jaxtrain.processes import greeting
from jaxtrain.processes.greeting import GreetedSocket, Refusal
from jaxtrain.processes.messages import MessageError
from tests.helpers.rows import each_row

TOKEN, OTHER = b"a token of this run", b"a token of another run"
NEVER = 300.0
HELLO = {
    "process": 1,
    "of": 2,
    "purpose": "peers",
    "nonce": "0" * 32,
    "token": True,
}

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Both ends of a connection: of the caller, and of process 0."""
    caller, zero = socket.socketpair()
    with caller, zero:
        yield caller, zero


def outcome(function: Callable[[], object]) -> object:
    try:
        return function()
    except (UserError, Refusal, MessageError, OSError) as error:
        return error


def greet(pair: Pair, caller: bytes | None, zero: bytes | None) -> list[object]:
    """Let both greet each other; return what it came to for the caller, and for 0."""
    caller_end, zero_end = pair
    deadline = time.monotonic() + NEVER
    found: list[object] = [None, None]

    def answer() -> None:
        found[1] = call = outcome(lambda: greeting.answer(zero_end, zero, deadline))
        if isinstance(call, GreetedSocket):
            call.go()
        with contextlib.suppress(OSError):  # It has hung up on one that it refused.
            zero_end.shutdown(socket.SHUT_WR)

    def call() -> object:
        mine = greeting.call(caller_end, 1, 2, "peers", caller, deadline)
        mine.wait_for_go(deadline)
        return mine

    thread = threading.Thread(target=answer)
    thread.start()
    found[0] = outcome(call)
    caller_end.shutdown(socket.SHUT_WR)
    thread.join()
    return found


@pytest.mark.parametrize("token", [TOKEN, None])
def test_processes_with_the_same_token_go_on(pair: Pair, token: bytes | None):
    """What comes after the greeting is left for others to read."""
    ours, theirs = greet(pair, token, token)
    assert isinstance(ours, GreetedSocket)
    assert isinstance(theirs, GreetedSocket)
    assert (theirs.process, theirs.of, theirs.purpose) == (1, 2, "peers")
    assert ours.connection.gettimeout() is theirs.connection.gettimeout() is None


@pytest.mark.parametrize(
    ("caller", "zero", "told"),
    [
        (TOKEN, OTHER, "process 1 has another JAXTRAIN_RUN_TOKEN than process 0"),
        (TOKEN, None, "process 1 has JAXTRAIN_RUN_TOKEN .* process 0 has not"),
        (None, TOKEN, "process 0 has JAXTRAIN_RUN_TOKEN .* process 1 has not"),
    ],
)
def test_both_tell_of_tokens_that_differ(
    pair: Pair, caller: bytes | None, zero: bytes | None, told: str
):
    ours, theirs = greet(pair, caller, zero)
    assert isinstance(ours, UserError)
    assert isinstance(theirs, Refusal)
    for text in (str(ours), theirs.reason):
        with pytest.raises(UserError, match=told):
            raise UserError(text)
        assert "give all processes of the run the same" in text


def said_by_zero() -> list[bytes]:
    """Return the lines that process 0 says to a caller with the right token."""
    ours, theirs = socket.socketpair()
    with ours, theirs, ours.makefile("rb") as file:
        deadline = time.monotonic() + NEVER
        thread = threading.Thread(
            target=lambda: greeting.answer(theirs, TOKEN, deadline).go()
        )
        thread.start()
        hello = json.dumps(HELLO).encode() + b"\n"
        ours.sendall(hello)
        challenge = file.readline()
        said = b"caller\n" + hello + challenge
        proof = hmac.new(TOKEN, said, "sha256").hexdigest()
        ours.sendall(json.dumps({"proof": proof}).encode() + b"\n")
        go = file.readline()
        thread.join()
    return [challenge, go]


def test_what_process_0_said_once_proves_nothing_again(pair: Pair):
    """Somebody else answers at the address with what was recorded there before."""
    ours, theirs = pair
    theirs.sendall(b"".join(said_by_zero()))
    deadline = time.monotonic() + NEVER
    call = greeting.call(ours, 1, 2, "peers", TOKEN, deadline)
    with pytest.raises(UserError, match="does not hold the JAXTRAIN_RUN_TOKEN"):
        call.wait_for_go(deadline)


def test_proof_of_the_caller_is_none_of_process_0(pair: Pair):
    """Without the token, the best that one can do is to send the proof back."""
    ours, theirs = pair
    theirs.sendall(said_by_zero()[0])
    deadline = time.monotonic() + NEVER
    call = greeting.call(ours, 1, 2, "peers", TOKEN, deadline)
    proof = json.loads(theirs.recv(4096).splitlines()[-1])["proof"]
    theirs.sendall(json.dumps({"go": proof}).encode() + b"\n")
    with pytest.raises(UserError, match="does not hold the JAXTRAIN_RUN_TOKEN"):
        call.wait_for_go(deadline)


def test_the_token_is_not_sent(pair: Pair):
    said = b"".join(said_by_zero())
    ours, theirs = pair
    theirs.sendall(said_by_zero()[0])
    greeting.call(ours, 1, 2, "peers", TOKEN, time.monotonic() + NEVER)
    said += theirs.recv(4096)
    assert said.count(b"\n") == 4
    for spelt in (TOKEN, TOKEN.hex().encode()):
        assert spelt not in said


JUNK = [
    b"\n",
    b"GET / HTTP/1.0\r\n\r\n",
    b"\xff\xff\n",
    b"[" * 4000 + b"\n",
    b"x" * 5000,
    b"x",
    b'{"process": 1e999, "of": 2}\n',
    b'{"process": Infinity, "of": 2}\n',
    *(
        json.dumps({**HELLO, **change}).encode() + b"\n"
        for change in (
            {"process": 1e300},
            {"process": -1},
            {"of": None},
            {"purpose": "kv"},
            {"nonce": "0" * 3000},
            {"nonce": 5},
            {"token": 1},
            {"more": 1},
        )
    ),
]


@each_row("said", JUNK)
def test_callers_that_are_no_process_are_given_up(said: bytes):
    caller, zero = socket.socketpair()
    with caller, zero:
        caller.sendall(said)
        caller.shutdown(socket.SHUT_WR)
        with pytest.raises(MessageError):
            greeting.answer(zero, TOKEN, time.monotonic() + NEVER)


@given(st.binary(max_size=200), st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_answer_is_no_process_0(first: bytes, then: bytes):
    """However the other end goes on, a caller ends with an error of its own."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(first + b"\n" + then + b"\n")
        theirs.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + NEVER
        with pytest.raises((MessageError, UserError)):
            greeting.call(ours, 1, 2, "jax", TOKEN, deadline).wait_for_go(deadline)


def test_a_byte_now_and_then_does_not_put_the_deadline_off(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
):
    """Time passes with each byte here, and the connection never runs dry."""
    caller, zero = pair
    caller.sendall(b"x" * 1000)
    now = iter(range(10_000))
    monkeypatch.setattr(greeting.time, "monotonic", lambda: float(next(now)))
    with pytest.raises(TimeoutError):
        greeting.answer(zero, TOKEN, 5.0)
    assert len(zero.recv(4096)) == 1000 - 5


@pytest.mark.parametrize("value", ["", "short", "x" * 15])
def test_a_token_that_could_be_guessed_is_refused(
    value: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(greeting.TOKEN_VARIABLE, value)
    with pytest.raises(UserError, match=f"has {len(value)} characters.*16 or more"):
        greeting.token_from_environment()


def test_token_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(greeting.TOKEN_VARIABLE)
    assert greeting.token_from_environment() is None
    monkeypatch.setitem(os.environb, greeting.TOKEN_VARIABLE.encode(), b"\xff" * 16)
    assert greeting.token_from_environment() == b"\xff" * 16
