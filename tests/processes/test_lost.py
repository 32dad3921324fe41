"""A process that is lost ends the others, told and with 75; then both go on."""

import errno
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from jaxtrain.processes import relay
from tests.helpers.processes import ROOT, Cli, end_all, free_port, two
from tests.helpers.recipes import recipe
from tests.helpers.runs import read_summary
from tests.helpers.waiting import PATIENCE, wait_for_lines

# The processes wait for each other in every step.
CONFIG = recipe(
    data='DataConfig(source="digits", batch_size=64, cache="stream")',
    train="TrainConfig(steps=48, eval_every_steps=100)",
    logging="LoggingConfig(every_steps=1)",
    # No process is silent here, however busy the machine is.
    parallel="ParallelConfig(heartbeat_seconds=300, shutdown_seconds=60)",
)
HANG = "hang@step:30"
KILLED = "error: process {} ended without a word; the same command goes on\n"
SILENT = (
    "error: process {} was silent for 5 s (parallel.heartbeat_seconds); the same "
    "command goes on\n"
)

Both = Sequence["subprocess.Popen[str]"]


@pytest.fixture
def started() -> "Iterator[list[subprocess.Popen[str]]]":
    """What a test starts: it ends with the test, whatever the test comes to."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    end_all(processes)


@pytest.fixture
def start_both(cli: Cli, write_config: Callable[..., Path]) -> Callable[..., Both]:
    """Start two processes of a run; process `index` has the fault."""
    config = write_config(CONFIG)

    def start(
        index: int = 0, fault: str = "", *words: object, program: str = ""
    ) -> Both:
        words = ("--config", config, "--workdir", "run", *words)
        return [
            cli.start(*each, program=program, fault=fault if i == index else "")
            for i, each in enumerate(two(*words))
        ]

    return start


def end(process: "subprocess.Popen[str]", code: int) -> str:
    """Return what the process told at its end."""
    _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == code, stderr
    assert "Traceback" not in stderr
    return stderr


def finish(both: Both, run: Path) -> None:
    for process in both:
        end(process, 0)
    assert read_summary(run)["step"] == 48


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_killed_process_ends_the_other_at_once(cli: Cli, start_both, lost: int):
    """Process 0, too, whose end JAX answers with SIGABRT."""
    both = start_both(lost, HANG)  # The other waits for it in a collective.
    run = cli.directory / "run"
    wait_for_lines(run / "metrics.jsonl", 12, both[0])
    both[lost].kill()
    told = end(both[1 - lost], 75)
    # A save on the way fails, too.
    assert [x for x in told.splitlines(True) if "warning: could not save" not in x] == [
        KILLED.format(lost)
    ]
    both[lost].communicate()
    finish(start_both(), run)


@pytest.mark.exhaustive
def test_hang_of_one_ends_both(cli: Cli, start_both):
    """Either may be the first to tell: the other waits for it, without a step."""
    both = start_both(1, HANG, "--train.step-timeout-seconds", 10)
    run = cli.directory / "run"
    # Those up to eight steps before are still to be told.
    wait_for_lines(run / "metrics.jsonl", 12, both[0])
    told = [end(process, 75) for process in both]
    assert all("error: " in text for text in told)
    assert any("no step was done for 10 s" in text for text in told)
    finish(start_both(), run)


# Without JAX: processes that meet, then do what the second line says.
SCRIPT = """
import sys, time
from jaxtrain.processes import peers, rendezvous
address, num, index = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
connections = rendezvous.meet(address, num, index, 300)["peers"]
link = peers.connect(index, connections, float(sys.argv[4]))
print("met", flush=True)
"""


@pytest.fixture
def start_all(started: "list[subprocess.Popen[str]]") -> Callable[..., Both]:
    """Start processes that run a line each once they have met."""

    def start(*lines: str, heartbeat: float = 60) -> Both:
        words = [f"127.0.0.1:{free_port()}", str(len(lines))]
        for index, line in enumerate(lines):
            arguments = [*words, str(index), str(heartbeat)]
            process = subprocess.Popen(
                [sys.executable, "-c", SCRIPT + line, *arguments],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            started.append(process)
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "met\n"
        return started

    return start


@pytest.mark.slow
def test_loss_is_passed_on_to_all(start_all):
    three = start_all(*["time.sleep(600)"] * 3)
    three[2].kill()
    three[2].communicate()
    for process in three[:2]:
        assert end(process, 75) == KILLED.format(2)


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_silent_process_ends_the_other(start_all, lost: int):
    """Itself it ends when it comes back."""
    two = start_all(*["time.sleep(600)"] * 2, heartbeat=5)
    two[lost].send_signal(signal.SIGSTOP)
    assert end(two[1 - lost], 75) == SILENT.format(lost)
    two[lost].send_signal(signal.SIGCONT)
    assert end(two[lost], 75) == KILLED.format(1 - lost)


@pytest.mark.slow
def test_agreed_place_counts_for_one_that_has_come_to_it(start_all):
    """One that ends before must tell the others, though it ends by the same signal."""
    lines = [
        "while link.stop(15) is None: time.sleep(0.01)\n",
        "time.sleep(1)\n"
        "assert link.stopped is None\n"
        "while link.stop(None) is None: time.sleep(0.01)\n"
        "assert link.stopped == 15\n",
    ]
    for process in start_all(*[line + "link.farewell(60)" for line in lines]):
        assert end(process, 0) == ""


@pytest.fixture
def tunnel() -> "Iterator[tuple[socket.socket, socket.socket]]":
    """A connection over TCP: the end of a process, and that of process 0."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        end = socket.create_connection(listener.getsockname())
        with end, listener.accept()[0] as zero:
            yield end, zero


def test_relay_keeps_its_end_when_the_other_is_reset(tunnel):
    """JAX's client would abort its process if its connection closed."""
    end, zero = tunnel
    with relay.private_path() as path:
        relay.start(path, end)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
            zero.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            zero.close()
            client.sendall(b"beat")
            client.settimeout(0.2)
            with pytest.raises(TimeoutError):
                client.recv(1)


def test_relays_lead_to_the_service_once_it_listens(tunnel):
    """At paths that only this user may enter; each takes one connection."""
    end, zero = tunnel
    with relay.private_path() as here, relay.private_path() as there:
        for path in (here, there):
            assert stat.S_IMODE(Path(path).parent.stat().st_mode) == 0o700
        relay.serve(there, [zero])
        with socket.socket(socket.AF_UNIX) as service:
            service.bind(there)
            service.listen()
            inner = service.accept()[0]
        assert relay.is_ready(end)
        relay.start(here, end)
        with inner, socket.socket(socket.AF_UNIX) as client:
            client.connect(here)
            for sender, receiver in ((client, inner), (inner, client)):
                sender.sendall(b"words")
                receiver.settimeout(PATIENCE)
                assert receiver.recv(5) == b"words"
            with socket.socket(socket.AF_UNIX) as second:
                assert second.connect_ex(here) == errno.ECONNREFUSED
    assert not Path(here).parent.exists()


def test_service_that_process_0_did_not_come_to_start(tunnel):
    end, zero = tunnel
    zero.close()
    assert not relay.is_ready(end)


def test_long_folders_hold_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The path of a Unix socket has at most 107 bytes."""
    folder = tmp_path / ("d" * 100)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with relay.private_path() as path, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)


@pytest.mark.slow
def test_end_that_one_does_not_come_to(start_all):
    two = start_all("link.farewell(1)", "time.sleep(600)")
    message = "not all processes came to the end of the run in 1 s"
    assert f"error: {message} (parallel.shutdown_seconds)" in end(two[0], 75)
    assert message in end(two[1], 75)


@pytest.mark.slow
def test_end_that_all_come_to(start_all):
    """However late: what ends after it is not lost."""
    lines = ["link.farewell(60)", "time.sleep(1); link.farewell(60)"]
    for process in start_all(*lines):
        assert end(process, 0) == ""
