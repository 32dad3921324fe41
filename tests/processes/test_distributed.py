"""The environment of launchers, the start of processes, and XLA's flags."""

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import pytest
import yaml

from jaxtrain.errors import UserError
from jaxtrain.parallel import devices
from jaxtrain.parallel.devices import FLAG_SETS, set_xla_flags, xla_flags
from jaxtrain.processes import cluster, distributed
from jaxtrain.processes.distributed import Processes
from tests.helpers.processes import ROOT
from tests.helpers.rows import each_row

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
        if name.startswith(("SLURM_", "OMPI_", "JAX_", "JOB_COMPLETION", "TPU_")):
            monkeypatch.delenv(name)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


ENVIRONMENTS = [
    ({}, None),
    # JAX finds process 0.
    (SLURM, (None, 2, 1, None)),
    (ALLOCATION, None),
    ({**SLURM, "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}, None),
    ({**SLURM, "SLURM_STEP_TASKS_PER_NODE": "2"}, (None, 2, 1, [0])),
    ({**SLURM, "JAX_COORDINATOR_ADDRESS": "a:9"}, ("a:9", 2, 1, None)),
    (OPEN_MPI, (None, 4, 2, [2])),
    ({**OPEN_MPI, "CUDA_VISIBLE_DEVICES": "2"}, (None, 4, 2, None)),
    # mpirun's processes inherit the variables of the SLURM task that started them.
    ({**SLURM, **OPEN_MPI}, (None, 4, 2, [2])),
    (
        {"TPU_WORKER_HOSTNAMES": "t0,t1,t2,t3", "TPU_WORKER_ID": "2"},
        (None, 4, 2, None),
    ),
    ({"TPU_WORKER_HOSTNAMES": "t0", "TPU_WORKER_ID": "0"}, None),
    # Pods of an indexed job that know nothing of each other.
    ({"JOB_COMPLETION_INDEX": "3"}, None),
    ({"JAX_NUM_PROCESSES": "1", "JAX_PROCESS_ID": "0"}, None),
]


@each_row(("env", "expected"), ENVIRONMENTS)
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


@each_row(
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
        value = variable.get("value") or f"from {variable['valueFrom']}"
        monkeypatch.setenv(variable["name"], value)
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "3")  # As Kubernetes does.
    found = distributed.find(None, None, None)
    assert found is not None
    pod = f"{jobset['metadata']['name']}-{job['name']}-0-0"
    subdomain = jobset["spec"]["network"]["subdomain"]
    assert found.coordinator == f"{pod}.{subdomain}:55527"
    assert (found.num, found.index) == (spec["completions"], 3)
    assert spec["completions"] == spec["parallelism"]
    assert spec["completionMode"] == "Indexed"


def test_port_in_use_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cluster, "_current", cluster.current())
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        processes = Processes(coordinator=address, num=2, index=0)
        with pytest.raises(UserError, match="is in use on this machine"):
            distributed.start(processes, 5.0, 30.0)


def listening_above(first: int) -> socket.socket:
    """Listen at a free port from one on."""
    for port in range(first, 65536):
        with contextlib.suppress(OSError):
            return socket.create_server(("", port))
    pytest.skip("no port is free")


@each_row(
    "env",
    [
        {**SLURM, "SLURM_JOB_ID": "{0}", "SLURM_PROCID": "0"},
        {
            **OPEN_MPI,
            "OMPI_MCA_orte_hnp_uri": "{4096}.0;tcp://127.0.0.1:34911",
            "OMPI_COMM_WORLD_RANK": "0",
        },
    ],
)
def test_port_of_a_launcher_in_use_is_told(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    """JAX makes it of the job's number, and would end by a segmentation fault."""
    monkeypatch.setattr(cluster, "_current", cluster.current())
    with listening_above(61440) as server:
        port = server.getsockname()[1]
        for name, value in env.items():
            value = value.replace("{0}", str(port - 61440))
            monkeypatch.setenv(name, value.replace("{4096}", str((port - 61440) << 12)))
        with pytest.raises(UserError, match=f"port {port}, which .* is in use"):
            distributed.start(distributed.find(None, None, None), 5.0, 30.0)


def test_flags_of_the_user_win():
    environ = {"XLA_FLAGS": "--xla_gpu_enable_latency_hiding_scheduler=false --a=b"}
    flags = xla_flags("overlap", "gpu", environ).split()
    assert flags[-2:] == environ["XLA_FLAGS"].split()
    assert sum("latency_hiding" in flag for flag in flags) == 1
    assert "--xla_gpu_enable_pipelined_all_reduce=true" in flags
    assert len(flags) == len(FLAG_SETS["overlap"]) + 1
    environ = {"XLA_FLAGS": "--xla_gpu_enable_command_buffer=FUSION"}
    own = xla_flags("default", "gpu", environ, profiles=True)
    assert own == environ["XLA_FLAGS"]


def test_gpus_run_kernel_by_kernel_where_steps_are_profiled():
    assert (
        xla_flags("default", "gpu", {}, profiles=True)
        == "--xla_gpu_enable_command_buffer="
    )
    assert xla_flags("default", "cpu", {}, profiles=True) == ""


@each_row(
    ("preset", "platform"), [("default", "gpu"), ("overlap", "cpu"), ("overlap", "tpu")]
)
def test_flags_are_for_gpus_that_ask(preset: str, platform: str):
    assert xla_flags(preset, platform, {}) == ""
    assert xla_flags(preset, platform, {"XLA_FLAGS": "--a=b"}) == "--a=b"


def test_a_second_run_in_a_process_gets_its_own_flags_or_is_refused():
    user = "--a=b"
    environ = {"XLA_FLAGS": user}
    set_xla_flags("overlap", "gpu", environ, started=False)
    overlap = environ["XLA_FLAGS"]
    assert overlap == xla_flags("overlap", "gpu", {"XLA_FLAGS": user}) != user
    # XLA reads them once: the same ones again are no change, others have no effect.
    set_xla_flags("overlap", "gpu", environ, started=True)
    with pytest.raises(UserError, match=r"'default' .*restart the kernel"):
        set_xla_flags("default", "gpu", environ, started=True)
    assert environ["XLA_FLAGS"] == overlap
    set_xla_flags("default", "gpu", environ, started=False)
    assert environ["XLA_FLAGS"] == user
    with pytest.raises(UserError, match=r"xla_flags = 'overlap' .*initialized"):
        set_xla_flags("overlap", "gpu", environ, started=True)
    # Other platforms take none.
    set_xla_flags("overlap", "cpu", environ, started=True)


def test_a_process_that_has_started_refuses_other_flags(
    monkeypatch: pytest.MonkeyPatch,
):
    jax.devices()
    monkeypatch.setattr(devices, "_expected", lambda: "gpu")
    with pytest.raises(UserError, match=r"parallel\.xla_flags = 'overlap'"):
        devices.start("auto", flags="overlap")


@pytest.mark.slow
def test_xla_knows_the_flags():
    """It aborts at one that it does not know, whatever the platform."""
    command = [sys.executable, "-c", "import jax; jax.devices()"]
    flags = xla_flags("overlap", "gpu", {}, profiles=True)
    for value, known in ((flags, True), (f"{flags} --xla_gpu_no_such=1", False)):
        env = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": value}
        result = subprocess.run(command, env=env, capture_output=True, check=False)
        assert (result.returncode == 0) == known, result.stderr


@pytest.mark.slow
def test_scripts_are_valid_bash():
    scripts: list[Path] = [ROOT / "deploy" / n for n in ("local.sh", "slurm.sbatch")]
    for script in scripts:
        subprocess.run(["bash", "-n", script], check=True)
