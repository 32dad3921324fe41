"""What all processes of a run must know to do the same: one tells the others.

It goes through the key-value store of JAX's coordinator, not through the devices: a
process may wait for another's disk without a collective that runs out of time.
"""

import itertools
import json
from typing import Any

import jax
from jax._src import distributed

# Python takes signals between two of these.
WAIT_MS = 1000

_number = itertools.count()


def gather(value: Any) -> list[Any]:
    """Return the values of all processes, by their number, once all have called it.

    Args:
      value: JSON.
    """
    if jax.process_count() == 1:
        return [value]
    name = f"jaxtrain/agree/{next(_number)}"
    client: Any = distributed.global_state.client
    client.key_value_set(f"{name}/{jax.process_index()}", json.dumps(value))
    return [
        json.loads(_wait_for(client, f"{name}/{index}"))
        for index in range(jax.process_count())
    ]


def _wait_for(client: Any, key: str) -> str:
    while True:
        try:
            return client.blocking_key_value_get(key, WAIT_MS)
        except RuntimeError as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                raise
