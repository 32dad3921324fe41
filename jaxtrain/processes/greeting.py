"""Greeting of process 0, by which each side proves that it belongs to the run.

Lines of JSON, the caller's first:

    {"process": 1, "of": 2, "purpose": "peers", "nonce": RANDOM, "token": true}
    {"nonce": RANDOM, "token": true}
    {"proof": HMAC of the token over "caller" and the two lines above}
    {"go": HMAC of the token over "process 0" and the same}, once all processes are here

In place of either of its lines process 0 may say {"refused": REASON}. The random
numbers make a proof worthless for another greeting.

The token of a run is a secret that its processes share and prove without sending it.
Launchers hand it to every process in the environment. It is never derived from what
others know, such as the number of a job or the coordinator's address. Where neither
side has a token, the proofs show nothing.
"""

import contextlib
import hmac
import os
import re
import secrets
import socket
import time
from dataclasses import dataclass, field
from typing import Any

from jaxtrain.errors import UserError
from jaxtrain.processes import messages
from jaxtrain.processes.messages import Fields, MessageError

TOKEN_VARIABLE = "JAXTRAIN_RUN_TOKEN"
MIN_TOKEN_CHARACTERS = 16
HOW_TO_MAKE_A_TOKEN = "python -c 'import secrets; print(secrets.token_hex(32))'"

# What a connection is for: messages of the processes, or JAX's own.
PURPOSES = ("peers", "jax")

# Seconds for one greeting, however many lines or bytes it takes.
PATIENCE = 10.0
MAX_LINE = 4096
MAX_REASON = 2000


def _is_hex(value: Any) -> bool:
    return isinstance(value, str) and bool(re.fullmatch("[0-9a-f]{32,128}", value))


CHALLENGE: Fields = {"nonce": _is_hex, "token": lambda value: isinstance(value, bool)}
HELLO: Fields = {
    "process": messages.whole(0),
    "of": messages.whole(0),
    "purpose": lambda value: value in PURPOSES,
    **CHALLENGE,
}
PROOF: Fields = {"proof": _is_hex}
GO: Fields = {"go": _is_hex}
REFUSED: Fields = {"refused": messages.is_text}


def token_from_environment() -> bytes | None:
    """Return the token of this process; None: the processes are not authenticated.

    Raises:
      UserError: the token is so short that it could be guessed.
    """
    text = os.environ.get(TOKEN_VARIABLE)
    if text is None:
        return None
    if len(text) < MIN_TOKEN_CHARACTERS:
        raise UserError(
            f"{TOKEN_VARIABLE} in the environment has {len(text)} characters: expected "
            f"{MIN_TOKEN_CHARACTERS} or more, the same in all processes of the run, "
            f"such as of {HOW_TO_MAKE_A_TOKEN}; unset it to go without"
        )
    return os.fsencode(text)


@dataclass(eq=False)
class Refusal(Exception):
    """A caller without the token of the run: the number that it gave, and why."""

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
    # What both sides have said, their random numbers included.
    _transcript: bytes = field(repr=False)

    def proof(self, who: str) -> str:
        """Return the proof that a side holds the token, in hexadecimal.

        Each proves its name, too: no proof can be sent back as one's own.
        """
        said = f"{who}\n".encode() + self._transcript
        return hmac.new(self._token or b"", said, "sha256").hexdigest()

    def go(self) -> None:
        """Send the caller that all processes are here."""
        self._try_to_say({"go": self.proof("process 0")})
        self.connection.settimeout(None)

    def refuse(self, reason: str) -> None:
        """Send the caller why it cannot take part, and hang up."""
        with self.connection:
            self._try_to_say({"refused": reason[:MAX_REASON]})

    def _try_to_say(self, values: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            self.connection.sendall(messages.encode(values))

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
        _, answer = _receive(self.connection, GO, deadline, refusable=True)
        if not hmac.compare_digest(answer["go"], self.proof("process 0")):
            raise UserError(
                f"what answers at the coordinator's address does not hold the "
                f"{TOKEN_VARIABLE} of process {self.process}: give all processes "
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
    who = {"process": process, "of": of, "purpose": purpose}
    hello = messages.encode(who | _challenge(token))
    connection.settimeout(max(0.001, deadline - time.monotonic()))
    connection.sendall(hello)
    line, answer = _receive(connection, CHALLENGE, deadline, refusable=True)
    if answer["token"] != (token is not None):
        raise UserError(_one_token(process, of_caller=token is not None))
    found = GreetedSocket(connection, process, of, purpose, token, hello + line)
    connection.sendall(messages.encode({"proof": found.proof("caller")}))
    return found


def answer(
    connection: socket.socket, token: bytes | None, deadline: float
) -> GreetedSocket:
    """Greet a caller in process 0, up to where the other processes are waited for.

    Raises:
      Refusal: it has not the token of the run; it was told so.
      MessageError: it is not a process of a run.
      OSError: the connection broke, or the greeting took longer than the deadline.
    """
    line, hello = _receive(connection, HELLO, deadline)
    challenge = messages.encode(_challenge(token))
    connection.sendall(challenge)
    process, of, purpose = hello["process"], hello["of"], hello["purpose"]
    found = GreetedSocket(connection, process, of, purpose, token, line + challenge)
    if hello["token"] != (token is not None):
        # The caller sees it from the challenge, and says the same.
        raise Refusal(process, _one_token(process, of_caller=hello["token"]))
    _, answer = _receive(connection, PROOF, deadline)
    if not hmac.compare_digest(answer["proof"], found.proof("caller")):
        reason = (
            f"process {process} has another {TOKEN_VARIABLE} than process 0: give all "
            "processes of the run the same"
        )
        found.refuse(reason)
        raise Refusal(process, reason)
    connection.settimeout(PATIENCE)
    return found


def _one_token(process: int, *, of_caller: bool) -> str:
    """Return the message on a run where process 0 or the caller alone has a token."""
    has, lacks = (process, 0) if of_caller else (0, process)
    return (
        f"process {has} has {TOKEN_VARIABLE} in its environment and process "
        f"{lacks} has not: give all processes of the run the same, or none"
    )


def _challenge(token: bytes | None) -> dict[str, Any]:
    return {"nonce": secrets.token_hex(16), "token": token is not None}


def _receive(
    connection: socket.socket, fields: Fields, deadline: float, refusable: bool = False
) -> tuple[bytes, dict[str, Any]]:
    """Read a line of at most `MAX_LINE` bytes, checked; leave what comes after it.

    Raises:
      UserError: the line is a refusal, and may be one.
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
    values = messages.decode(line)
    if refusable and values.keys() == REFUSED.keys():
        messages.check(values, REFUSED)
        raise UserError(values["refused"])
    messages.check(values, fields)
    return line, values
