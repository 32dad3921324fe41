"""Reading ahead: in order, so far and no further, and over when nobody takes any."""

import os
import subprocess
import sys
import threading
import time

import pytest

from jaxtrain.data import ahead
from jaxtrain.errors import UserError
from tests.helpers.forked import ROOT
from tests.helpers.needs import missing
from tests.helpers.waiting import wait_until


@pytest.mark.parametrize("num_threads", [1, 4])
def test_order_is_that_of_the_positions(num_threads: int):
    """Also where the first take longest."""

    def read(position: int) -> int:
        time.sleep(0.002 * (position % 4 == 0))
        return position

    assert list(ahead.by_threads(read, range(3, 40), num_threads)) == [*range(3, 40)]
    assert list(ahead.by_threads(read, range(5, 5), num_threads)) == []


def test_who_takes_none_holds_the_reading_up():
    started: list[int] = []

    def read(position: int) -> int:
        started.append(position)
        return position

    stream = ahead.by_threads(read, range(1000), 4)
    taken = [next(stream) for _ in range(3)]
    most = len(taken) + ahead.READ_AHEAD
    wait_until(lambda: len(started) == most)
    time.sleep(0.05)  # Would there be more, they came now.
    assert len(started) == most
    stream.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("read")]
    assert len(started) == most


def test_workers_need_open_files(monkeypatch: pytest.MonkeyPatch):
    """It is told before any is started: in the midst they leave each other hanging."""
    monkeypatch.setattr(ahead, "raise_file_limit", lambda: 64)
    with pytest.raises(UserError, match=r"limit is 64: raise the limit"):
        next(ahead.by_workers(int, 0, 4, 1))


def leave(position: int) -> int:
    return sys.exit(position)


@pytest.mark.exhaustive
def test_a_reader_that_exits():
    """Of a worker that ends with 0 its trainer would wait for more batches."""
    with pytest.raises(UserError, match=r"test_ahead\.py:\d+: SystemExit: 0: custom"):
        next(ahead.by_workers(leave, 0, 4, 1))


# The memory is that of a test, not of this machine.
MOUNT = "mount -t tmpfs -o {} tmpfs /dev/shm && exec {} -c '{}'"
READ = "from jaxtrain.data import ahead; print(next(ahead.by_workers({}, 0, 4, 1)))"
PAGES = 'lambda i: __import__("numpy").ones({}_000_000)'


@pytest.mark.parametrize(
    ("options", "read", "reason"),
    [
        pytest.param("ro", "abs", "Read-only file system", marks=pytest.mark.slow),
        pytest.param(
            "size=1m",
            PAGES.format(1),
            "No space left on device",
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_workers_need_shared_memory(options: str, read: str, reason: str):
    script = MOUNT.format(options, sys.executable, READ.format(read))
    unshared = ["unshare", "--mount", "sh", "-c"]
    if subprocess.run([*unshared, "mount -t tmpfs tmpfs /dev/shm"]).returncode:
        missing("cannot mount another /dev/shm")
    result = subprocess.run(
        [*unshared, script], cwd=ROOT, capture_output=True, text=True
    )
    # Python's tracker of shared memory may follow with what a killed worker has left.
    (told,) = [x for x in result.stderr.splitlines() if x.startswith("jaxtrain.errors")]
    assert f"/dev/shm cannot be used ({reason})" in told
    assert "data.workers = 0" in told


def test_an_error_comes_in_its_place():
    def read(position: int) -> int:
        if position == 5:
            raise ValueError("five")
        return position

    stream = ahead.by_threads(read, range(1000), 4)
    assert [next(stream) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="five"):
        next(stream)
    assert not [t for t in threading.enumerate() if t.name.startswith("read")]


def test_number_of_workers(monkeypatch: pytest.MonkeyPatch):
    def chosen(cores: int, has_files: bool, num_examples: int) -> int:
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
        return ahead.choose_workers(has_files, num_examples)

    assert chosen(16, True, 1_000_000) == 15
    assert chosen(64, True, 1_000_000) == 16
    assert chosen(4, True, 1_000_000) == 0
    assert chosen(16, True, 10_000) == 0
    assert chosen(16, False, 1_000_000) == 0
