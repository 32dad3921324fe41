"""How a process calls process 0, and how each proves that it belongs to the run.

Lines of JSON, the caller's first:

    {"process": 1, "of": 2, "purpose": "peers", "nonce": RANDOM, "token": true}
    {"nonce": RANDOM, "token": true}
    {"proof": HMAC of the token over "caller" and the two lines above}
    {"go": HMAC of the token over "process 0" and the same}, once all processes are here

In place of either of its lines process 0 may say {"refused": REASON}. The random
numbers make a proof worthless for another greeting. Where neither side has a token, the
proofs show nothing.
"""

import contextlib
import re
import secrets
import socket
import time
from dataclasses import dataclass, field
from typing import Any

from jaxtrain.errors import UserError
from jaxtrain.processes import messages, run_token
from jaxtrain.processes.messages import Fields, MessageError

# What a connection is for: messages of the processes, or JAX's own.
PURPOSES = ("peers", "jax")

# Seconds for one greeting, however many lines or bytes it takes.
PATIENCE = 10.0
MAX_LINE = 4096
MAX_REASON = 2000


def _is_hex(value: Any) -> bool:
    return (
        isinstance(value, str) and re.fullmatch("[0-9a-f]{32,128}", value) is not None
    )


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


HELLO: Fields = {
    "process": messages.whole(0),
    "of": messages.whole(0),
    "purpose": lambda value: value in PURPOSES,
    "nonce": _is_hex,
    "token": _is_bool,
}
CHALLENGE: Fields = {"nonce": _is_hex, "token": _is_bool}
PROOF: Fields = {"proof": _is_hex}
GO: Fields = {"go": _is_hex}
REFUSED: Fields = {"refused": messages.is_text}


@dataclass(eq=False)
class Refusal(Exception):
    """A caller without the token of the run.

    Attributes:
      process: The number that it gave.
      reason: Why it was refused.
    """

    process: int
    reason: str


@dataclass
class GreetedSocket:
    """A connection between a process and process 0, at either end.

    Attributes:
      connection: The open socket.
      process: The number of the process that called.
      of: The number of processes that it knows of.
      purpose: One of `PURPOSES`.
    """

    connection: socket.socket
    process: int
    of: int
    purpose: str
    _token: bytes | None = field(repr=False)
    _transcript: bytes = field(repr=False)

    def go(self) -> None:
        """Send the caller that all processes are here."""
        proof = run_token.prove(self._token, "process 0", self._transcript)
        _try_to_say(self.connection, {"go": proof})
        self.connection.settimeout(None)

    def refuse(self, reason: str) -> None:
        """Send the caller why it cannot take part, and hang up."""
        with self.connection:
            _try_to_say(self.connection, {"refused": reason[:MAX_REASON]})

    def gone(self, seconds: float) -> bool:
        """Whether the process at the other end has ended, or does within `seconds`."""
        self.connection.settimeout(seconds)
        try:
            return not self.connection.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, TimeoutError):
            return False
        except OSError:
            return True
        finally:
            self.connection.settimeout(PATIENCE)

    def wait_for_go(self, deadline: float) -> None:
        """Wait, in the caller, until process 0 lets it go on.

        Raises:
          UserError: process 0 refuses, or has not the token.
          MessageError: what answers is not process 0 of a run.
          OSError: the connection broke, or nothing came by the deadline.
        """
        answer = _receive(self.connection, deadline)[1]
        _check_not_refused(answer)
        messages.check(answer, GO)
        if not run_token.is_proof(
            answer["go"], self._token, "process 0", self._transcript
        ):
            raise UserError(
                f"what answers at the coordinator's address does not hold the "
                f"{run_token.VARIABLE} of process {self.process}: give all processes "
                "of the run the same"
            )
        self.connection.settimeout(None)


def call(
    connection: socket.socket,
    process: int,
    of: int,
    purpose: str,
    token: bytes | None,
    deadline: float,
) -> GreetedSocket:
    """Greet process 0, up to where the other processes are waited for.

    Raises:
      UserError: process 0 refuses, or one of the two alone has a token.
      MessageError: what answers is not process 0 of a run.
      OSError: the connection broke, or the greeting took longer than the deadline.
    """
    hello = messages.encode(
        {
            "process": process,
            "of": of,
            "purpose": purpose,
            "nonce": secrets.token_hex(16),
            "token": token is not None,
        }
    )
    connection.settimeout(max(0.001, deadline - time.monotonic()))
    connection.sendall(hello)
    line, answer = _receive(connection, deadline)
    _check_not_refused(answer)
    messages.check(answer, CHALLENGE)
    if answer["token"] != (token is not None):
        raise UserError(one_token(process, of_caller=token is not None))
    transcript = hello + line
    proof = run_token.prove(token, "caller", transcript)
    connection.sendall(messages.encode({"proof": proof}))
    return GreetedSocket(connection, process, of, purpose, token, transcript)


def answer(
    connection: socket.socket, token: bytes | None, deadline: float
) -> GreetedSocket:
    """Greet a caller in process 0, up to where the other processes are waited for.

    Raises:
      Refusal: it has not the token of the run; it was told so.
      MessageError: it is not a process of a run.
      OSError: the connection broke, or the greeting took longer than the deadline.
    """
    line, hello = _receive(connection, deadline)
    messages.check(hello, HELLO)
    challenge = messages.encode(
        {"nonce": secrets.token_hex(16), "token": token is not None}
    )
    connection.sendall(challenge)
    found = GreetedSocket(
        connection,
        hello["process"],
        hello["of"],
        hello["purpose"],
        token,
        line + challenge,
    )
    if hello["token"] != (token is not None):
        # The caller sees it from the challenge, and says the same.
        raise Refusal(found.process, one_token(found.process, of_caller=hello["token"]))
    proof = _receive(connection, deadline)[1]
    messages.check(proof, PROOF)
    if not run_token.is_proof(proof["proof"], token, "caller", line + challenge):
        reason = (
            f"process {found.process} has another {run_token.VARIABLE} than process 0: "
            "give all processes of the run the same"
        )
        _try_to_say(connection, {"refused": reason})
        raise Refusal(found.process, reason)
    connection.settimeout(PATIENCE)
    return found


def one_token(process: int, *, of_caller: bool) -> str:
    """Return the message on a run where process 0 or the caller alone has a token."""
    has, lacks = (process, 0) if of_caller else (0, process)
    return (
        f"process {has} has {run_token.VARIABLE} in its environment and process "
        f"{lacks} has not: give all processes of the run the same, or none"
    )


def _check_not_refused(answer: dict[str, Any]) -> None:
    if answer.keys() == REFUSED.keys():
        messages.check(answer, REFUSED)
        raise UserError(answer["refused"])


def _try_to_say(connection: socket.socket, values: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(messages.encode(values))


def _receive(
    connection: socket.socket, deadline: float
) -> tuple[bytes, dict[str, Any]]:
    """Read a line of at most `MAX_LINE` bytes; leave there what comes after it.

    Returns:
      The line as it came, and what it says.
    """
    line = b""
    while not line.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
        more = connection.recv(1)
        if not more or len(line) >= MAX_LINE:
            raise MessageError("not a line")
        line += more
    return line, messages.decode(line)
