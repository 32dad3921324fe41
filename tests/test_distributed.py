"""What a process is told about the others, how they meet, and XLA's flags."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml

from jaxtrain.errors import UserError
from jaxtrain.parallel.xla_flags import PRESETS, xla_flags
from jaxtrain.processes import distributed, rendezvous
from jaxtrain.processes.distributed import Processes
from tests.helpers.processes import ROOT

# As srun sets it for the second of two tasks on two machines.
SLURM = {
    "SLURM_JOB_ID": "4097",
    "SLURM_STEP_NODELIST": "node[07-08]",
    "SLURM_NTASKS": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_PROCID": "1",
    "SLURM_LOCALID": "0",
}
# As mpirun sets it for the third of four processes, all on one machine.
OPEN_MPI = {
    "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "2",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
}
# What a batch script, or a shell inside an allocation of two tasks, sees.
ALLOCATION = {k: v for k, v in SLURM.items() if "STEP" not in k} | {"SLURM_PROCID": "0"}


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch):
    for name in os.environ:
        if name.startswith(("SLURM_", "OMPI_", "JAX_", "JOB_COMPLETION")):
            monkeypatch.delenv(name)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


ENVIRONMENTS = [
    ({}, None),
    # JAX's port: the job's number in a range of 4096.
    (SLURM, ("node07:61441", 2, 1, None)),
    (ALLOCATION, None),
    ({**SLURM, "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}, None),
    ({**SLURM, "SLURM_STEP_TASKS_PER_NODE": "2"}, ("node07:61441", 2, 1, [0])),
    ({**SLURM, "JAX_COORDINATOR_ADDRESS": "a:9"}, ("a:9", 2, 1, None)),
    (OPEN_MPI, ("10.96.0.1:62624", 4, 2, [2])),
    ({**OPEN_MPI, "CUDA_VISIBLE_DEVICES": "2"}, ("10.96.0.1:62624", 4, 2, None)),
    # mpirun's processes inherit the variables of the SLURM task that started them.
    ({**SLURM, **OPEN_MPI}, ("10.96.0.1:62624", 4, 2, [2])),
    # Pods of an indexed job that know nothing of each other.
    ({"JOB_COMPLETION_INDEX": "3"}, None),
    ({"JAX_NUM_PROCESSES": "1", "JAX_PROCESS_ID": "0"}, None),
]


@pytest.mark.parametrize(("env", "expected"), ENVIRONMENTS)
def test_environment_tells_the_processes(
    env: dict[str, str], expected: tuple | None, monkeypatch: pytest.MonkeyPatch
):
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    found = distributed.find(None, None, None)
    if expected is None:
        assert found is None
    else:
        assert found == Processes(
            **dict(
                zip(
                    ("coordinator", "num", "index", "local_device_ids"),
                    expected,
                    strict=True,
                )
            )
        )


@pytest.mark.parametrize(
    ("env", "named"),
    [
        ({"JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "0"}, "JAX_COORDINATOR_ADDRESS"),
        # Open MPI 5 does not tell where mpirun runs.
        ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}, "--coordinator"),
        (
            {"JAX_NUM_PROCESSES": "2", "JAX_COORDINATOR_ADDRESS": "a:1"},
            "JAX_PROCESS_ID",
        ),
        ({"JAX_NUM_PROCESSES": "two"}, "'two'"),
    ],
)
def test_environment_that_tells_too_little(
    env: dict[str, str], named: str, monkeypatch: pytest.MonkeyPatch
):
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=named):
        distributed.find(None, None, None)


def test_jobset_tells_each_pod_its_place(monkeypatch: pytest.MonkeyPatch):
    jobset = yaml.safe_load((ROOT / "deploy" / "jobset.yaml").read_text())
    (job,) = jobset["spec"]["replicatedJobs"]
    spec = job["template"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    for variable in container["env"]:
        monkeypatch.setenv(variable["name"], variable["value"])
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "3")  # As Kubernetes does.
    found = distributed.find(None, None, None)
    assert found is not None
    pod = f"{jobset['metadata']['name']}-{job['name']}-0-0"
    subdomain = jobset["spec"]["network"]["subdomain"]
    assert found.coordinator == f"{pod}.{subdomain}:55527"
    assert (found.num, found.index) == (spec["completions"], 3)
    assert spec["completions"] == spec["parallelism"]
    assert spec["completionMode"] == "Indexed"


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def meet_at(address: str, num: int, index: int, timeout: float = 60) -> str:
    """Meet, hang up, and return where the coordinator should listen."""
    bound, connections = rendezvous.meet(address, num, index, timeout)
    assert sorted(connections) == (list(range(1, num)) if index == 0 else [0])
    for connection in connections.values():
        connection.close()
    return bound


def meet(*processes: tuple[int, int], timeout: float = 60) -> list[str]:
    """Let processes meet, (number, of how many) each; return what each came to."""
    address, outcomes = free_address(), [""] * len(processes)

    def run(place: int, index: int, num: int) -> None:
        try:
            outcomes[place] = meet_at(address, num, index, timeout)
        except UserError as error:
            outcomes[place] = str(error)

    threads = [
        threading.Thread(target=run, args=(place, index, num))
        for place, (index, num) in enumerate(processes)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [outcome.replace(address, "ADDRESS") for outcome in outcomes]


def test_processes_meet_at_the_address_alone():
    """Loopback stays loopback: the coordinator is open to nobody else."""
    assert meet((0, 3), (1, 3), (2, 3)) == ["ADDRESS"] * 3


def test_missing_process_is_named_to_all():
    outcomes = meet((0, 4), (2, 4), timeout=3)
    for outcome in outcomes:
        assert "for process 1, 3: 2 of 4 processes came" in outcome


def test_processes_that_do_not_fit_together_are_told():
    for outcome in meet((0, 3), (1, 2)):
        assert "process 1 was started with --num-processes 2, process 0 with 3" in (
            outcome
        )
    for outcome in meet((0, 4), (1, 4), (1, 4)):
        assert "two processes were started as --process-id 1" in outcome


def test_callers_that_are_none_of_ours_are_passed_over():
    address = free_address()
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(meet_at(address, 2, 0)))
    thread.start()
    host, port = rendezvous.split(address)
    for words in (b"GET / HTTP/1.0\r\n\r\n\n", b'{"process": 1}\n', b"[]\n", b""):
        for _ in range(2400):
            try:
                with socket.create_connection((host, port)) as connection:
                    connection.sendall(words)
                break
            except ConnectionRefusedError:
                thread.join(0.05)
    assert meet_at(address, 2, 1) == address
    thread.join()
    assert found == [address]


def test_process_that_ended_while_it_waited_may_come_again():
    address = free_address()
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(meet_at(address, 3, 0)))
    thread.start()
    host, port = rendezvous.split(address)
    for _ in range(2400):
        try:
            with socket.create_connection((host, port)) as connection:
                connection.sendall(b'{"process": 1, "of": 3}\n')
            break
        except ConnectionRefusedError:
            thread.join(0.05)
    others = [threading.Thread(target=meet_at, args=(address, 3, i)) for i in (1, 2)]
    for other in others:
        other.start()
    for other in [*others, thread]:
        other.join()
    assert found == [address]


def test_address_in_use_is_named():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(UserError, match=f"127.0.0.1:{port} .*in use.*free port"):
            rendezvous.meet(f"127.0.0.1:{port}", 2, 0, 1)


def test_flags_of_the_user_win():
    environ = {"XLA_FLAGS": "--xla_gpu_enable_latency_hiding_scheduler=false --a=b"}
    flags = xla_flags("overlap", "gpu", environ).split()
    assert flags[-2:] == environ["XLA_FLAGS"].split()
    assert sum("latency_hiding" in flag for flag in flags) == 1
    assert "--xla_gpu_enable_pipelined_all_reduce=true" in flags
    assert len(flags) == len(PRESETS["overlap"]) + 1


@pytest.mark.parametrize(
    ("preset", "platform"), [("default", "gpu"), ("overlap", "cpu"), ("overlap", "tpu")]
)
def test_flags_are_for_gpus_that_ask(preset: str, platform: str):
    assert xla_flags(preset, platform, {}) == ""
    assert xla_flags(preset, platform, {"XLA_FLAGS": "--a=b"}) == "--a=b"


def test_xla_knows_the_flags():
    """It aborts at one that it does not know, whatever the platform."""
    command = [sys.executable, "-c", "import jax; jax.devices()"]
    flags = xla_flags("overlap", "gpu", {})
    for value, known in ((flags, True), (f"{flags} --xla_gpu_no_such=1", False)):
        env = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": value}
        result = subprocess.run(command, env=env, capture_output=True, check=False)
        assert (result.returncode == 0) == known, result.stderr


def test_scripts_are_valid_bash():
    scripts: list[Path] = [ROOT / "deploy" / n for n in ("local.sh", "slurm.sbatch")]
    for script in scripts:
        subprocess.run(["bash", "-n", script], check=True)
