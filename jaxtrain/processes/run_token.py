"""The token of a run: a secret that its processes share, and prove without sending it.

Launchers hand it to every process in the environment. It is never derived from what
others know, such as the number of a job or the coordinator's address.
"""

import hmac
import os

from jaxtrain.errors import UserError

VARIABLE = "JAXTRAIN_RUN_TOKEN"
MIN_CHARACTERS = 16
HOW_TO_MAKE = "python -c 'import secrets; print(secrets.token_hex(32))'"


def from_environment() -> bytes | None:
    """Return the token of this process; None: the processes are not authenticated.

    Raises:
      UserError: the token is so short that it could be guessed.
    """
    text = os.environ.get(VARIABLE)
    if text is None:
        return None
    if len(text) < MIN_CHARACTERS:
        raise UserError(
            f"{VARIABLE} in the environment has {len(text)} characters: expected "
            f"{MIN_CHARACTERS} or more, the same in all processes of the run, such as "
            f"of {HOW_TO_MAKE}; unset it to go without"
        )
    return os.fsencode(text)


def prove(token: bytes | None, who: str, transcript: bytes) -> str:
    """Return the proof that a side of a greeting holds the token, in hexadecimal.

    Args:
      token: Of the run; with None the proof shows nothing.
      who: The side that proves it, so that a proof cannot be sent back as one's own.
      transcript: What both sides have said, their random numbers included.
    """
    return hmac.new(
        token or b"", f"{who}\n".encode() + transcript, "sha256"
    ).hexdigest()


def is_proof(value: str, token: bytes | None, who: str, transcript: bytes) -> bool:
    """Whether `value` is the proof that `prove` makes of the same arguments."""
    expected = prove(token, who, transcript)
    return hmac.compare_digest(value.encode(), expected.encode())
