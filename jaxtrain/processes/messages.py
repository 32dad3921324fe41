"""Messages between background threads of different processes.

Messages use the key-value store of JAX's coordination service. They cannot use device
collectives, whose order relative to the collectives of the training step would differ
between processes. The store is not in JAX's public API, but Orbax uses it, too.
"""

import json
from collections.abc import Callable
from typing import Any

from jaxtrain.errors import StartAgainError

# Interval in milliseconds at which a receiver calls `given_up`.
_POLL_MS = 1000


def send(key: str, value: Any) -> None:
    """Send a JSON value under a new key.

    Raises:
      StartAgainError: Process 0, which holds the store, was lost.
    """
    try:
        _client().key_value_set(key, json.dumps(value))
    except RuntimeError as error:
        raise _lost(error) from None


def receive(key: str, given_up: Callable[[], bool]) -> Any:
    """Wait for the JSON value sent under a key, and delete the key.

    Args:
      key: Key for which no other process waits.
      given_up: Function that returns whether to stop waiting.

    Raises:
      StartAgainError: Process 0, which holds the store, was lost, or `given_up`
        returned True.
    """
    client = _client()
    while True:
        try:
            value = client.blocking_key_value_get(key, _POLL_MS)
            client.key_value_delete(key)
            return json.loads(value)
        except RuntimeError as error:
            if "DEADLINE_EXCEEDED" not in str(error) or given_up():
                raise _lost(error) from None


def _client() -> Any:
    from jax.experimental import multihost_utils

    library: Any = multihost_utils
    return library.distributed.global_state.client


def _lost(error: Exception) -> StartAgainError:
    return StartAgainError(
        "lost connection to another process during a save "
        f"({str(error).splitlines()[0]}); the same command resumes from the last "
        "checkpoint"
    )
