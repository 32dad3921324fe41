"""Waiting for a state, never for a time."""

import time
from collections.abc import Callable
from pathlib import Path


def wait_for_lines(path: Path, count: int, process) -> None:
    """Wait until the run has written some lines of metrics."""
    for _ in range(1200):
        if path.exists() and len(path.read_text().splitlines()) >= count:
            return
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    raise AssertionError(f"{path} did not come to {count} lines")


def wait_until(done: Callable[[], object]) -> None:
    for _ in range(6000):
        if done():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come to that in a minute")
