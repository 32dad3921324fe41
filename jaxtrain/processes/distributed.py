"""Several processes: is this one of them, and the start of `jax.distributed`."""

import atexit
import functools
import ipaddress
import math
import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jax
from jax._src import distributed, xla_bridge
from jax._src.clusters import OmpiCluster, SlurmCluster
from jax._src.lib import _jax  # pyright: ignore[reportPrivateImportUsage]
from jax.extend import backend

from jaxtrain.config import MAX_SECONDS, ParallelConfig
from jaxtrain.console import tell
from jaxtrain.errors import StartAgainError, UserError
from jaxtrain.processes import greeting, peers, relay, rendezvous
from jaxtrain.processes.rendezvous import split

# JAX's heartbeat, which ends a process by SIGABRT, is so much slower than ours.
JAX_PATIENCE = 60.0


@dataclass(frozen=True, kw_only=True)
class Processes:
    """The processes of a run, and which of them this is.

    Attributes:
      coordinator: HOST:PORT, where process 0 listens.
      num: processes in all.
      index: of this one, from 0.
      local_device_ids: the GPUs of the machine that this process takes; None: all that
        it sees.
    """

    coordinator: str
    num: int
    index: int
    local_device_ids: list[int] | None = None

    def __post_init__(self) -> None:
        split(self.coordinator)
        if self.num < 1:
            raise UserError(f"--num-processes {self.num}: expected 1 or more")
        if not 0 <= self.index < self.num:
            raise UserError(
                f"--process-id {self.index}: expected 0 to {self.num - 1}, as "
                f"--num-processes is {self.num}"
            )


def find(
    coordinator: str | None, num_processes: int | None, process_id: int | None
) -> Processes | None:
    """Find the processes of the run, from the flags or the environment.

    Returns:
      The processes; None: this one trains alone.

    Raises:
      UserError: some of the flags are missing, or do not fit together.
    """
    flags = {
        "--coordinator": coordinator,
        "--num-processes": num_processes,
        "--process-id": process_id,
    }
    missing = [name for name, value in flags.items() if value is None]
    if coordinator is None or num_processes is None or process_id is None:
        if len(missing) < len(flags):
            given = [f"{n} {v}" for n, v in flags.items() if v is not None]
            raise UserError(
                f"{' '.join(given)}: give {' and '.join(missing)} too, or none of them"
            )
        return _from_environment()
    return Processes(coordinator=coordinator, num=num_processes, index=process_id)


def _from_environment() -> Processes | None:
    """Read what Kubernetes (by our manifest), Open MPI or SLURM say.

    `mpirun` inside SLURM starts its processes by one SLURM task a machine: it is asked
    first. One process, or one task, is alone.
    """
    env = os.environ
    address = env.get("JAX_COORDINATOR_ADDRESS")
    num = _number("JAX_NUM_PROCESSES")
    index = _number("JAX_PROCESS_ID", "JOB_COMPLETION_INDEX")
    cluster: Any = None
    local: list[int] | None = None
    if num is None and (num := _number("OMPI_COMM_WORLD_SIZE")) is not None:
        index, cluster = _number("OMPI_COMM_WORLD_RANK"), OmpiCluster
        local = _own_gpu("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")
    # Of the step, which srun starts: a shell in the allocation is none of its tasks.
    elif num is None and (num := _number("SLURM_STEP_NUM_TASKS")) is not None:
        index, cluster = _number("SLURM_PROCID"), SlurmCluster
        local = _own_gpu("SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE")
    if num is None or num == 1:
        return None
    if address is None and cluster is not None and cluster.is_env_present():
        address = cluster.get_coordinator_address(None, env.get("JAX_COORDINATOR_PORT"))
    if address is None or index is None:
        raise UserError(
            f"this is one of {num} processes, but the environment does not tell "
            f"{'where process 0 is' if address is None else 'which'}: set "
            f"{'JAX_COORDINATOR_ADDRESS' if address is None else 'JAX_PROCESS_ID'}, or "
            "give --coordinator HOST:PORT --num-processes N --process-id I"
        )
    return Processes(coordinator=address, num=num, index=index, local_device_ids=local)


def start(
    processes: Processes | None, init_timeout: float, parallel: ParallelConfig
) -> None:
    """Connect this process with the others; must come before JAX's backend starts.

    Args:
      processes: of the run; None or one: there is nothing to do.
      init_timeout: seconds to wait for all to come to the start.
      parallel: how long to wait for a sign of life of one, and for all to end.

    Raises:
      UserError: they did not come in time, or do not fit together.
      StartAgainError: process 0 ended meanwhile.
    """
    if not 0 < init_timeout <= MAX_SECONDS:
        raise UserError(
            f"--init-timeout {init_timeout:g}: expected seconds above 0, at most "
            f"{MAX_SECONDS}"
        )
    if processes is None or processes.num == 1:
        return
    address, index = processes.coordinator, processes.index
    token = greeting.token_from_environment()
    if token is None and index == 0:
        tell(
            f"warning: {greeting.TOKEN_VARIABLE} is not set: the processes are not "
            f"authenticated, and whoever reaches {address} can take part in the run. "
            f"Give all processes the same, such as of {greeting.HOW_TO_MAKE_A_TOKEN}"
        )
    met = rendezvous.meet(address, processes.num, index, init_timeout, token)
    host = own_host(met["peers"].values())
    link = peers.connect(index, met["peers"], parallel.heartbeat_seconds)
    with relay.private_path() as path:
        if index == 0:
            relay.serve(path, met["jax"].values())
        elif relay.is_ready(met["jax"][0]):
            relay.start(path, met["jax"][0])
        else:
            link.explain()
            raise StartAgainError("process 0 ended while JAX connected the processes")
        _connect_jax(processes, f"unix:{path}", parallel)
    _let_gloo_listen_at(host)
    atexit.register(_finish, link, parallel.shutdown_seconds)


def _connect_jax(processes: Processes, service: str, parallel: ParallelConfig) -> None:
    """Start JAX's part, once process 0 listens at `service` or a relay leads there."""
    # It takes SIGTERM for itself; `Peers` agrees on the place to stop.
    jax.config.update("jax_enable_preemption_service", False)
    # Of proxies, which do not concern a Unix socket.
    jax.config.update("jax_check_proxy_envs", False)
    jax.distributed.initialize(
        service,
        processes.num,
        processes.index,
        processes.local_device_ids,
        cluster_detection_method="deactivate",
        coordinator_bind_address=service,
        heartbeat_timeout_seconds=math.ceil(parallel.heartbeat_seconds + JAX_PATIENCE),
        shutdown_timeout_seconds=math.ceil(parallel.shutdown_seconds),
    )


def _finish(link: peers.Peers, seconds: float) -> None:
    """Wait at the end of Python for the other processes, then shut JAX's part down."""
    link.farewell(seconds)
    jax.distributed.shutdown()


def own_host(connections: Iterable[socket.socket]) -> str:
    """Return the IP address at which other processes reach this one.

    Args:
      connections: To other processes. Of several addresses, one that is not loopback
        is taken: a process on the same machine reaches it, too.
    """
    hosts = []
    for connection in connections:
        host = ipaddress.ip_address(connection.getsockname()[0].partition("%")[0])
        mapped = getattr(host, "ipv4_mapped", None)
        hosts.append(mapped or host)
    return str(min(hosts, key=lambda host: host.is_loopback))


def _let_gloo_listen_at(host: str) -> None:
    """Let Gloo, which sums over processes on CPUs, listen at this address alone.

    By default it looks the machine's own name up, which need not resolve (JAX then
    finds no device at all), and on Debian is 127.0.1.1, which no other machine reaches.

    Must come after `jax.distributed.initialize`, and before JAX's backend starts. It
    does nothing where `JAX_CPU_COLLECTIVES_IMPLEMENTATION` names another library.
    """
    if getattr(jax.config, "jax_cpu_collectives_implementation") != "gloo":  # noqa: B009
        return
    try:
        collectives = _jax.make_gloo_tcp_collectives(
            distributed_client=distributed.global_state.client, hostname=host
        )
    except RuntimeError as error:
        raise UserError(
            f"Gloo, which connects the processes on CPUs, cannot listen at {host}, the "
            f"address of this machine that the coordinator sees ({error}): give "
            "--coordinator by a name or address that leads there over another network"
        ) from None
    factory = functools.partial(xla_bridge.make_cpu_client, collectives)
    backend.register_backend_factory("cpu", factory, priority=0, fail_quietly=False)


def _number(*names: str) -> int | None:
    for name in names:
        value = os.environ.get(name)
        if value is not None:
            if not value.isdigit():
                raise UserError(f"{name} = {value!r} in the environment: not a number")
            return int(value)
    return None


def _own_gpu(local_index: str, tasks_on_machine: str) -> list[int] | None:
    """Give each of several processes on a machine one of its GPUs.

    A single one takes all, and so does one that the launcher shows a single GPU.
    """
    # SLURM writes 2(x3),1: two tasks on three machines, one on the last.
    several = os.environ.get(tasks_on_machine, "1").split("(")[0].split(",")[0] != "1"
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    one_visible = bool(visible) and "," not in visible
    index = _number(local_index)
    return [index] if several and not one_visible and index is not None else None
