"""Python's garbage collector, held back while a command imports what it needs."""

import contextlib
import gc
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Hold the collector back while JAX and what is built on it are imported.

    Modules stay until the process ends, so that it would look through all of them and
    find nothing; nor does it look at them again afterwards. That is 0.6 s of the CPU
    time of a start (docs/decisions.md). Where JAX is imported already, as in a
    notebook, nothing changes: garbage that waits there would never be collected.
    """
    if "jax" in sys.modules:
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
