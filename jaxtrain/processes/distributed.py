"""Initialization of `jax.distributed` from flags or from a launcher's environment."""

import ctypes
import errno
import ipaddress
import math
import os
import signal
import socket
import threading
from dataclasses import dataclass
from typing import Any

import jax

from jaxtrain.config import MAX_SECONDS
from jaxtrain.errors import UserError
from jaxtrain.processes import cluster, launcher_port
from jaxtrain.processes.cluster import Cluster

# Environment variable in which Open MPI before version 5 sets the address of process 0.
OPEN_MPI_ADDRESS = "OMPI_MCA_orte_hnp_uri"


@dataclass(frozen=True, kw_only=True)
class Processes:
    """Arguments of `jax.distributed.initialize`.

    Attributes:
      coordinator: HOST:PORT of process 0. None lets JAX detect the address, which works
        with SLURM, Open MPI and TPUs.
      num: Number of processes.
      index: Index of this process, from 0.
      local_device_ids: Indices of the GPUs that this process uses. None uses all
        visible GPUs.
    """

    coordinator: str | None
    num: int
    index: int
    local_device_ids: list[int] | None = None

    def __post_init__(self) -> None:
        if self.coordinator is not None:
            split(self.coordinator)
        if self.num < 1:
            raise UserError(f"--num-processes {self.num}: expected 1 or more")
        if not 0 <= self.index < self.num:
            raise UserError(
                f"--process-id {self.index}: expected 0 to {self.num - 1}, as "
                f"--num-processes is {self.num}"
            )


def split(address: str) -> tuple[str, int]:
    """Split HOST:PORT or [IPV6]:PORT into (host, port); raise UserError on failure."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise UserError(
            f"--coordinator {address}: expected HOST:PORT, such as node1:12345"
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


def find(
    coordinator: str | None, num_processes: int | None, process_id: int | None
) -> Processes | None:
    """Determine the processes of the run from flags, else from the environment.

    Returns:
      The processes; None if the environment describes a single process.

    Raises:
      UserError: Flags are missing or inconsistent.
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
                f"{' '.join(given)}: also give {' and '.join(missing)}, or leave all "
                "three options out"
            )
        return _from_environment()
    return Processes(coordinator=coordinator, num=num_processes, index=process_id)


def _from_environment() -> Processes | None:
    """Determine the processes from variables of Kubernetes, Open MPI, SLURM or TPUs.

    Open MPI is checked before SLURM, because `mpirun` in a SLURM job starts one SLURM
    task per machine. Returns None for a single process.
    """
    env = os.environ
    address = env.get("JAX_COORDINATOR_ADDRESS")
    num = _number("JAX_NUM_PROCESSES")
    index = _number("JAX_PROCESS_ID", "JOB_COMPLETION_INDEX")
    local: list[int] | None = None
    known = address is not None
    if num is None and (num := _number("OMPI_COMM_WORLD_SIZE")) is not None:
        index, known = _number("OMPI_COMM_WORLD_RANK"), known or OPEN_MPI_ADDRESS in env
        local = _own_gpu("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")
    # SLURM_STEP_NUM_TASKS is set in srun tasks, but not in a shell in the allocation.
    elif num is None and (num := _number("SLURM_STEP_NUM_TASKS")) is not None:
        index, known = _number("SLURM_PROCID"), known or "SLURM_STEP_NODELIST" in env
        local = _own_gpu("SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE")
    elif num is None and "," in env.get("TPU_WORKER_HOSTNAMES", ""):
        num = env["TPU_WORKER_HOSTNAMES"].count(",") + 1
        index, known = _number("TPU_WORKER_ID"), True
    if num is None or num == 1:
        return None
    if not known or index is None:
        raise UserError(
            f"this is one of {num} processes, but the environment does not define "
            f"{'the process index' if known else 'the address of process 0'}; set "
            f"{'JAX_PROCESS_ID' if known else 'JAX_COORDINATOR_ADDRESS'}, or give "
            "--coordinator HOST:PORT --num-processes N --process-id I"
        )
    return Processes(coordinator=address, num=num, index=index, local_device_ids=local)


def start(
    processes: Processes | None, init_timeout: float, heartbeat_timeout: float
) -> None:
    """Connect this process to the other processes, before JAX's backend starts.

    Args:
      processes: Processes of the run; None for a single process.
      init_timeout: Timeout in seconds for connecting all processes.
      heartbeat_timeout: Seconds without heartbeat after which a process is lost.

    Raises:
      UserError: A timeout is invalid, or the processes cannot be connected.
    """
    for name, value in (("init", init_timeout), ("heartbeat", heartbeat_timeout)):
        if not 0 < value <= MAX_SECONDS:
            raise UserError(
                f"--{name}-timeout {value:g}: expected a number of seconds above 0, "
                f"at most {MAX_SECONDS}"
            )
    if processes is None or processes.num == 1:
        return
    here = Cluster(processes.index, processes.num, heartbeat_timeout, _notify_jax)
    cluster.enter(here)
    with here.connecting():
        _connect(processes, init_timeout, heartbeat_timeout)


def _connect(
    processes: Processes, init_timeout: float, heartbeat_timeout: float
) -> None:
    address, bind = processes.coordinator, None
    if processes.index == 0 and address is not None:
        bind = _address_to_bind(address)
    elif processes.index == 0:
        launcher_port.check()
    jax.config.update("jax_enable_preemption_service", True)
    jax.config.update("jax_check_proxy_envs", False)
    # If JAX detects the launcher and local_device_ids is None, a process uses the GPUs
    # in JAX_LOCAL_DEVICE_IDS (if unset, one GPU). With [], it uses all visible GPUs.
    detects = address is None and "JAX_LOCAL_DEVICE_IDS" not in os.environ
    local = [] if detects else None
    failed: list[Exception] = []

    def initialize() -> None:
        try:
            jax.distributed.initialize(
                address,
                processes.num,
                processes.index,
                processes.local_device_ids or local,
                cluster_detection_method=None if address is None else "deactivate",
                coordinator_bind_address=bind,
                # At this timeout JAX aborts the process, so `join` below must time out
                # first.
                initialization_timeout=math.ceil(init_timeout) + 3600,
                heartbeat_timeout_seconds=math.ceil(heartbeat_timeout),
            )
        except Exception as error:
            failed.append(error)

    # Connect in a thread: JAX would block Python's signal handlers in the main thread.
    thread = threading.Thread(target=initialize, daemon=True)
    thread.start()
    thread.join(init_timeout)
    if failed:
        raise UserError(
            f"JAX cannot connect the processes ({failed[0]}): check --coordinator and "
            "the network"
        )
    if thread.is_alive():
        where = "" if address is None else f" at --coordinator {address}"
        raise UserError(
            f"process {processes.index} of {processes.num} waited {init_timeout:g} s "
            f"(--init-timeout) for the other processes{where}{_unresolved(address)}: "
            "start all processes with the same --coordinator and --num-processes, and "
            "check that this machine can reach the coordinator"
        )
    _take_over_sigterm()


def _address_to_bind(coordinator: str) -> str:
    """Address that process 0 binds: the coordinator's, or else all local addresses.

    On Debian, the coordinator's hostname may resolve to a loopback address, to which
    other machines cannot connect; then all addresses are bound.

    Raises:
      UserError: The port is in use, or no address can be bound.
    """
    host, port = split(coordinator)
    try:
        found = str(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0])
    except socket.gaierror:  # Other machines may be able to resolve the name.
        found = "::"
    loopback = ipaddress.ip_address(found.partition("%")[0]).is_loopback
    own = [] if loopback and host not in (found, "localhost") else [found]
    for address in (*own, "::", "0.0.0.0"):
        options: dict[str, Any] = {}
        if ":" in address:
            both = address == "::" and socket.has_dualstack_ipv6()
            options = {"family": socket.AF_INET6, "dualstack_ipv6": both}
        try:
            with socket.create_server((address, port), **options):
                return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise UserError(
                    f"--coordinator {coordinator}: port {port} is in use on this "
                    "machine, the host of process 0: give a free port"
                ) from None
    raise UserError(
        f"--coordinator {coordinator}: process 0 cannot listen on port {port}: give "
        "the host of process 0 and a free port of this host"
    )


def _unresolved(coordinator: str | None) -> str:
    if coordinator is None:
        return ""
    host, port = split(coordinator)
    try:
        socket.getaddrinfo(host, port)
    except socket.gaierror as error:
        return f", whose host does not resolve on this machine ({error.strerror})"
    return ""


# JAX's handler of SIGTERM, which lets all processes agree on a step at which to stop.
_jax_handler = ctypes.CFUNCTYPE(None, ctypes.c_int)()


def _take_over_sigterm() -> None:
    """Replace JAX's SIGTERM handler by Python's; `_notify_jax` calls JAX's handler.

    JAX's handler hides SIGTERM from Python's handler, which treats SIGINT, SIGTERM and
    SIGUSR1 alike.
    """
    global _jax_handler
    replace = ctypes.CDLL(None).signal
    replace.restype, replace.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]
    address = replace(signal.SIGTERM, int(signal.SIG_IGN))
    _jax_handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(address)
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))


def _notify_jax() -> None:
    if _jax_handler:
        _jax_handler(signal.SIGTERM)


def _number(*names: str) -> int | None:
    for name in names:
        value = os.environ.get(name)
        if value is not None:
            if not value.isdigit():
                raise UserError(
                    f"environment variable {name} = {value!r}: expected a number"
                )
            return int(value)
    return None


def _own_gpu(local_index: str, tasks_on_machine: str) -> list[int] | None:
    """Index of the only GPU that this process uses; None if it uses all visible GPUs.

    A process uses one GPU if its machine runs several processes, unless the launcher
    shows it only one GPU. The arguments are names of environment variables.
    """
    # For SLURM, 2(x3),1 means two tasks on each of three machines, and one on a fourth.
    several = os.environ.get(tasks_on_machine, "1").split("(")[0].split(",")[0] != "1"
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    one_visible = bool(visible) and "," not in visible
    index = _number(local_index)
    return [index] if several and not one_visible and index is not None else None
