"""Compilation for GPUs that are not present, in an environment with XLA's GPU compiler.

The compiler is JAX's CUDA plugin. On a machine without a GPU the plugin causes warnings
whenever JAX starts, so it is installed in a separate environment and runs in a separate
process.
"""

import contextlib
import importlib.metadata
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import jax

from jaxtrain import own
from jaxtrain.environments import ROOT, Environment
from jaxtrain.errors import UserError
from jaxtrain.parallel.devices import nvidia_gpus, start as start_jax, xla_flags
from jaxtrain.plugins.plan.targets import CPU, Target

PLUGINS = ("jax-cuda12-plugin", "jax-cuda13-plugin")
COMPILER = Environment(
    libraries=tuple(name.replace("-", "_") for name in PLUGINS),
    folder=".venv-gpu-compiler",
    variable="JAXTRAIN_GPU_COMPILER",
    target="gpu-compiler",
    purpose="compiling for a GPU needs XLA's GPU compiler",
)


# Program of the subprocess: import, then wait for a request. It is run with -P, so that
# modules in the current directory do not shadow libraries.
PROGRAM = """
from jaxtrain.processes.collector import held_back
with held_back():
    from jaxtrain.plugins.plan import gpu_compiler
    from jaxtrain.plugins.plan import facts
gpu_compiler.answer()
"""
# At most one process that `ready` started: (target, environment, process).
_ready: list[tuple[Target, dict[str, str], subprocess.Popen[bytes]]] = []


class KilledError(UserError):
    """The process that `call` started was killed, probably when out of memory."""


def check_versions() -> None:
    """Raise UserError if the CUDA plugin and JAX have different versions."""
    version, found = importlib.metadata.version("jaxlib"), dict[str, str]()
    for name in PLUGINS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    if version not in found.values():
        told = ", ".join(f"{name} {v}" for name, v in found.items()) or "no plugin"
        raise UserError(
            f"expected JAX's CUDA plugin {version}, the version of jaxlib, but found "
            f"{told}: {COMPILER.fix}"
        )


def devices(target: Target) -> Sequence[Any]:
    """Return abstract devices of `target`, from which a mesh can be built.

    Raises:
      UserError: XLA cannot compile for the target.
    """
    from jax.experimental import topologies

    assert target.gpu is not None and target.num_devices is not None
    each = target.num_devices // target.num_nodes
    try:
        topology = topologies.get_topology_desc(
            platform="cuda",
            target_config=target.gpu.description,
            topology=f"1x{target.num_nodes}x{each}",
        )
    except (NotImplementedError, RuntimeError, ValueError) as error:
        raise UserError(
            f"--target {target}: JAX {jax.__version__} cannot compile for this GPU "
            f"({error}); choose another --target"
        ) from None
    return topology.devices


def environment(target: Target) -> dict[str, str]:
    """Return the environment variables of a process for `target`."""
    env = dict(os.environ)
    paths = [str(ROOT), env.get("PYTHONPATH", "")]
    env["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    if target.gpu is not None:
        # The CUDA variables prevent JAX from searching for a driver, and from failing
        # without a driver. Computations run on the CPU.
        env |= {
            "CUDA_VISIBLE_DEVICES": "-1",
            "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
            "JAX_PLATFORMS": "cpu",
            "TF_CPP_MIN_LOG_LEVEL": "2",
        }
    elif target.name == CPU:
        env |= {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(target.num_devices)}
    elif target.num_devices is not None:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(visible_gpus()[: target.num_devices])
    return env


def visible_gpus() -> list[str]:
    """List the visible GPUs, named as in $CUDA_VISIBLE_DEVICES."""
    if os.environ.get("JAX_PLATFORMS") == "cpu":
        return []
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name for name in chosen.split(",") if name]
    return [str(i) for i in range(len(nvidia_gpus()))]


def start(target: Target, flags: str = "default") -> Sequence[Any] | None:
    """Initialize JAX in the process that `call` started.

    Args:
      target: Target of the process.
      flags: Name of a set of XLA flags, a value of `parallel.xla_flags`.

    Returns:
      Abstract devices to compile for; None to use the devices of this process.

    Raises:
      UserError: XLA cannot compile for the target, or its devices are missing.
    """
    if target.gpu is None:
        start_jax("auto", flags=flags)
        return None
    check_versions()
    # This process runs on the CPU, but compiles with the flags of GPUs.
    os.environ["XLA_FLAGS"] = xla_flags(flags, "gpu", os.environ)
    start_jax("cpu")
    return devices(target)


@contextlib.contextmanager
def ready(target: Target) -> Iterator[None]:
    """Context manager: for a GPU target, start the process of the next `call` early.

    The process is killed on exit if it was not used.
    """
    with contextlib.suppress(UserError):  # `call` reports what is missing.
        if target.gpu is not None:
            env = environment(target)
            _ready.append((target, env, _start(COMPILER.find(), env)))
    try:
        yield
    finally:
        while _ready:
            process = _ready.pop()[-1]
            process.kill()
            process.communicate()


def _start(python: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    pipe, words = subprocess.PIPE, [str(python), "-P", "-c", PROGRAM]
    return subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, env=env)


def call(
    target: Target,
    function: Callable[..., Any],
    *arguments: Any,
    timeout: float | None = None,
) -> Any:
    """Call `function(*arguments)` in a process for `target`.

    Args:
      target: Target that determines the Python interpreter and environment variables.
      function: Top-level function of a module, as required by pickle.
      arguments: Picklable arguments of the function.
      timeout: Time limit of the process in seconds; None for no limit.

    Raises:
      subprocess.TimeoutExpired: The time limit was reached.
      KilledError: The process was killed.
      UserError: Raised by the function; or the environment is missing, or has another
        version of JAX.
    """
    python = COMPILER.find() if target.gpu is not None else Path(sys.executable)
    request = pickle.dumps((own.decided(), function, arguments))
    env = environment(target)
    if _ready and _ready[0][:2] == (target, env):
        process = _ready.pop()[-1]
    else:
        process = _start(python, env)
    with process:
        try:
            stdout, stderr_bytes = process.communicate(
                pickle.dumps((jax.__version__, request)), timeout
            )
        except BaseException:  # Also kill the process if a signal stops the command.
            process.kill()
            raise
    stderr = stderr_bytes.decode(errors="replace")
    try:
        kind, value = pickle.loads(stdout)
    except (pickle.UnpicklingError, EOFError, ValueError):
        _fail(python, target, process.returncode, stderr)
    if kind == "error":
        raise UserError(value)
    return value


def answer() -> None:
    """Run the request read from stdin, and write its result to stdout."""
    # Redirect other output to stderr, so that stdout contains only the result.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    version, request = pickle.load(sys.stdin.buffer)
    try:
        if version != jax.__version__:
            raise UserError(
                f"{sys.executable}: expected JAX {version}, as in the environment of "
                f"the command, but found JAX {jax.__version__}: {COMPILER.fix}"
            )
        decided, function, arguments = pickle.loads(request)
        own.hand_over(decided)
        reply = ("value", function(*arguments))
    except UserError as error:
        reply = ("error", str(error))
    with out:
        pickle.dump(reply, out)


def _fail(python: Path, target: Target, code: int, stderr: str) -> NoReturn:
    """Raise an error for a process without a result; a negative code is a signal."""
    # XLA aborts the process when out of memory.
    if code == -signal.SIGKILL or "std::bad_alloc" in stderr:
        raise KilledError(
            f"the process that compiles for {target} was killed, probably out of "
            "memory: use a smaller model or batch size"
        )
    lines = stderr.splitlines()
    # XLA aborts a process with unknown flags.
    if flags := [line for line in lines if "in XLA_FLAGS" in line]:
        given = os.environ.get("XLA_FLAGS", "")
        raise UserError(
            f"$XLA_FLAGS = {given!r}: XLA rejects a flag ({flags[-1]}); remove the flag"
        )
    if missing := [line for line in lines if "ModuleNotFoundError" in line]:
        raise UserError(f"{python}: {missing[-1]}: {COMPILER.fix}")
    raise RuntimeError(
        f"{python} exited with code {code} without a result:\n{stderr[-4000:]}"
    )
