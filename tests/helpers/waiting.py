"""Waiting for a state, never for a time."""

import contextlib
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

# Seconds after which something counts as hung, however busy the machine is.
PATIENCE = 300


def wait_until(done: Callable[[], object], *processes: "subprocess.Popen[str]") -> None:
    """Wait for a state that these processes come to before they end."""
    limit = time.monotonic() + PATIENCE
    while True:
        ended = [process for process in processes if process.poll() is not None]
        if done():
            return
        assert not ended, ended[0].communicate()
        assert time.monotonic() < limit, "it did not come to that in minutes"
        time.sleep(0.01)


def wait_for_lines(path: Path, count: int, process: "subprocess.Popen[str]") -> None:
    """Wait until the run has written some lines of metrics."""

    def written() -> bool:
        return path.exists() and len(path.read_text().splitlines()) >= count

    wait_until(written, process)


def wait_until_asleep(process: "subprocess.Popen[str]") -> None:
    """Wait until its main thread waits for something, and not for a CPU."""
    stat = Path(f"/proc/{process.pid}/stat")
    looks = 0

    def slept() -> bool:
        nonlocal looks
        state = stat.read_text().rpartition(")")[2].split()[0]
        looks = looks + 1 if state == "S" else 0
        return looks == 100  # In a row, for a second.

    wait_until(slept, process)


def signal_until_end(process: "subprocess.Popen[str]", signum: int) -> None:
    """Send a signal again and again; a repeat within a second would not count."""
    limit = time.monotonic() + PATIENCE
    while process.poll() is None:
        assert time.monotonic() < limit, "no signal ends it"
        process.send_signal(signum)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.5)
