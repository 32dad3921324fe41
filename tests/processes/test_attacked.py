"""Whole runs of two processes while somebody else calls at the coordinator's port."""

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jaxtrain.processes import greeting, rendezvous
from tests.helpers.processes import ROOT, Cli, end_all, two
from tests.helpers.recipes import recipe
from tests.helpers.runs import read_summary
from tests.helpers.waiting import PATIENCE, wait_for_lines, wait_until

CONFIG = recipe(
    data='DataConfig(source="digits", batch_size=64, cache="stream")',
    train="TrainConfig(steps=12, eval_every_steps=100)",
    logging="LoggingConfig(every_steps=1)",
    parallel="ParallelConfig(heartbeat_seconds=300)",
)
HELLO = {"process": 1, "of": 2, "purpose": "peers", "nonce": "0" * 32, "token": True}
CALLS = [
    b"",
    b"GET / HTTP/1.0\r\n\r\n",
    b'{"process": 1e999, "of": 2}\n',
    b'{"process": Infinity, "of": 2}\n',
    b"[" * 4000 + b"\n",
    b'{"kind": "end", "code": 0, "message": ""}\n',
    json.dumps({**HELLO, "of": 3}).encode() + b'\n{"proof": "' + b"0" * 64 + b'"}\n',
    json.dumps({**HELLO, "token": False}).encode() + b"\n",
    # As a client of HTTP/2 begins, such as JAX's.
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]
# A client of JAX that claims to be process 1.
JAX_CLIENT = """
import sys
from jax._src.lib import _jax
client = _jax.get_distributed_runtime_client(sys.argv[1], 1, init_timeout=5)
client.connect()
"""

pytestmark = pytest.mark.exhaustive


def listening(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def test_a_run_under_attack_ends_as_if_alone(cli: Cli, write_config):
    """Junk, silence, strangers that claim to be process 1, and a client of JAX's."""
    words = two("--config", write_config(CONFIG), "--workdir", "run")
    address = str(words[0][words[0].index("--coordinator") + 1])
    port = int(address.rpartition(":")[2])
    run = cli.directory / "run"
    with contextlib.ExitStack() as stack:
        zero = cli.start(*words[0])
        wait_until(lambda: listening(port), zero)
        for words_of_stranger in CALLS * 3:
            stranger = stack.enter_context(
                socket.create_connection(("127.0.0.1", port))
            )
            with contextlib.suppress(OSError):
                stranger.sendall(words_of_stranger)
        other: dict[str, Any] = {greeting.TOKEN_VARIABLE: secrets.token_hex(32)}
        impostor = cli.start(*words[1], **other)
        told = impostor.communicate(timeout=PATIENCE)[1]
        assert impostor.returncode == 2, told
        assert "another JAXTRAIN_RUN_TOKEN than process 0" in told
        client = subprocess.run(
            [sys.executable, "-c", JAX_CLIENT, address],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            check=False,
        )
        assert client.returncode != 0
        one = cli.start(*words[1])
        wait_for_lines(run / "metrics.jsonl", 2, zero)
        assert not listening(port)
        for process in (zero, one):
            _, told = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, told
            assert "Traceback" not in told
    assert read_summary(run)["step"] == 12
    assert read_summary(run)["num_processes"] == 2


def test_processes_listen_on_loopback_alone(cli: Cli, write_config):
    """Those that meet there: Gloo, too, and nothing of JAX's is open to others."""
    words = two("--config", write_config(CONFIG), "--workdir", "run")
    both = [cli.start(*each, "--train.steps", 100_000) for each in words]
    wait_for_lines(cli.directory / "run" / "metrics.jsonl", 2, both[0])
    # Gloo listens for the other process, if nothing else does.
    found = [host for process in both for host in listeners(process.pid)]
    assert found
    for host in found:
        assert host in ("0100007F", "00000000000000000000000001000000"), host
    end_all(both)


def listeners(pid: int) -> set[str]:
    """Return the addresses, in hexadecimal, at which a process listens."""
    sockets = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            target = os.readlink(entry)
            if target.startswith("socket:["):
                sockets.add(target[8:-1])
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in sockets:
                found.add(fields[1].partition(":")[0])
    return found


def test_a_machine_whose_name_does_not_resolve(cli: Cli, write_config):
    """Gloo would look it up, and JAX then says that it finds no device."""
    inside = ["unshare", "--uts", "--mount", "sh", "-c"]
    name = "no-such-name.invalid"
    change = f'hostname {name} && exec "$@"'
    probe = subprocess.run([*inside, change, "sh", "true"], capture_output=True)
    if probe.returncode:
        message = f"cannot give the machine another name: {probe.stderr.decode()}"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    words = ["--", "--config", write_config(CONFIG), "--workdir", "run"]
    launcher = [str(ROOT / "deploy" / "local.sh"), "2", *map(str, words)]
    result = subprocess.run(
        [*inside, change, "sh", *launcher],
        cwd=cli.directory,
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert read_summary(cli.directory / "run")["num_processes"] == 2


def test_junk_from_a_process_of_the_run_ends_the_others_in_order(
    cli: Cli, write_config
):
    """One that met the others, and then is not what it was: they start again."""
    token = os.environ[greeting.TOKEN_VARIABLE].encode()
    words = two("--config", write_config(CONFIG), "--workdir", "run")
    address = str(words[0][words[0].index("--coordinator") + 1])
    zero = cli.start(*words[0])
    met = rendezvous.meet(address, 2, 1, PATIENCE, token)
    with met["peers"][0] as connection, met["jax"][0]:
        connection.sendall(b'{"kind": "end", "code": 0, "message": "finished"}\n')
        told = zero.communicate(timeout=PATIENCE)[1]
    assert zero.returncode == 75, told
    junk = (
        "error: process 1 sent what no process of a run sends (a wrong value of 'code'"
    )
    assert told.startswith(junk)
    assert "Traceback" not in told
