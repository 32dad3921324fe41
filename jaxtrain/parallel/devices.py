"""The platform that JAX runs on, XLA's flags and memory, and the cache of programs."""

import ctypes
import importlib.util
import os
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Literal

import jax
import pynvml

from jaxtrain import extras
from jaxtrain.console import tell
from jaxtrain.errors import UserError, counted
from jaxtrain.parallel import cpu_devices
from jaxtrain.regular_file import make_private

Platform = Literal["auto", "cpu", "gpu", "tpu"]

# Options of glibc's mallopt, from malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8

# Values of XLA_FLAGS that this process has set -> what the user had set before.
_flags_before: dict[str, str] = {}

# A program in command buffers, which GPUs run as one, hides its kernels from profilers.
WITHOUT_COMMAND_BUFFERS = {"xla_gpu_enable_command_buffer": ""}

# Flags of the GPU compiler, by the name of the set; jaxlib refuses to start with one
# that it does not know.
FLAG_SETS: dict[str, dict[str, str]] = {
    "default": {},
    "overlap": {
        # Start collectives as early, and wait for them as late, as the data allow.
        "xla_gpu_enable_latency_hiding_scheduler": "true",
        # Across the passes of a loop: gradient accumulation, several steps a call.
        "xla_gpu_enable_pipelined_all_reduce": "true",
        "xla_gpu_enable_pipelined_all_gather": "true",
        "xla_gpu_enable_pipelined_reduce_scatter": "true",
        # Bytes up to which collectives are joined. All gradients in one could start
        # only after the last of them; XLA's own limit is 30 MiB.
        "xla_gpu_all_reduce_combine_threshold_bytes": str(16 * 2**20),
        "xla_gpu_all_gather_combine_threshold_bytes": str(16 * 2**20),
        "xla_gpu_reduce_scatter_combine_threshold_bytes": str(16 * 2**20),
    },
}


def start(
    platform: Platform,
    *,
    flags: str = "default",
    profiles: bool = False,
    cpus: int | Literal["auto"] | None = None,
    connect: Callable[[], None] = lambda: None,
) -> None:
    """Choose the platform, set XLA up and start JAX's backend.

    Must come before JAX makes its first array; after that it checks that nothing else
    is wanted.

    Args:
      platform: Platform to run on.
      flags: Named set of XLA flags, for GPUs.
      profiles: Whether steps are profiled, and so GPUs run kernel by kernel.
      cpus: CPU devices to make (see `cpu_devices.offer`). None leaves it to JAX.
      connect: Called before the backend starts, to connect it with other processes.

    Raises:
      UserError: the platform is missing, JAX has started with other flags, it fell
        back to the CPU of a machine that has an NVIDIA GPU, or not all processes came.
    """
    if platform != "auto":
        jax.config.update("jax_platforms", {"gpu": "cuda"}.get(platform, platform))
    started = cpu_devices.backend_started()
    set_xla_flags(flags, _expected(), os.environ, started=started, profiles=profiles)
    _enable_compilation_cache()
    if _expected() == "cpu":
        _keep_freed_memory()
    connect()
    if cpus is not None and _expected() == "cpu":
        cpu_devices.offer(cpus)
    try:
        backend = jax.default_backend()
    # JAX asserts where the platform is known and no device of it is found.
    except (RuntimeError, AssertionError) as error:
        reason = f" ({error})" if str(error) else ""
        raise UserError(
            f"--platform {platform}: JAX finds no such device{reason}. For an NVIDIA "
            f"GPU: {extras.install('cuda12')}"
        ) from None
    gpus = nvidia_gpus() if backend == "cpu" and not _chosen() else []
    if gpus:
        raise UserError(
            f"this machine has {counted(len(gpus), 'NVIDIA GPU')} ({gpus[0]}), but JAX "
            "has no CUDA support and would train on the CPU. Install it with "
            f"{extras.install('cuda12')} (or cuda13), or choose the CPU with "
            "--platform cpu"
        )


def _chosen() -> str:
    """Return the platforms that --platform or $JAX_PLATFORMS name."""
    return getattr(jax.config, "jax_platforms") or ""  # noqa: B009


def _expected() -> str:
    """Return what JAX will run on, without starting it: gpu, or another platform."""
    first = _chosen().split(",")[0]
    if first:
        return "gpu" if first in ("cuda", "rocm", "gpu") else first
    plugins = [f"jax_cuda{version}_plugin" for version in (12, 13)]
    installed = any(importlib.util.find_spec(name) for name in plugins)
    return "gpu" if installed and nvidia_gpus() else "cpu"


def nvidia_gpus() -> list[str]:
    """List the names of the NVIDIA GPUs that the driver sees."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    count = pynvml.nvmlDeviceGetCount()
    handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(count))
    return [str(pynvml.nvmlDeviceGetName(handle)) for handle in handles]


def _keep_freed_memory() -> None:
    """Have glibc keep what a step frees for the next step.

    By default the activations of each step go back to the system, which hands them out
    again page by page, zeroed: half of the time of a small CNN's step on CPU
    (docs/decisions.md). Must come before XLA starts its threads, each of which would
    have a heap of its own. Another C library goes on as it is.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 2**30)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
        # A single heap: the others are mapped anew for every large block.
        mallopt(M_ARENA_MAX, 1)


def cache_folder(name: str) -> Path | None:
    """Create a folder in the user's cache; return None where nothing can be kept.

    A program in it is code that a later run executes: nothing is kept in a folder that
    belongs to another user or into which others can write.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if cache.startswith("~"):
        return None  # The user has no home.
    folder = Path(cache, "jaxtrain", name)
    try:
        if make_private(folder):
            return folder
    except OSError:
        return None
    tell(
        f"{folder}: no folder that only you can write to, so compiled programs are not "
        "kept there: set JAX_COMPILATION_CACHE_DIR or XDG_CACHE_HOME to one of yours"
    )
    return None


def _enable_compilation_cache() -> None:
    """Cache compiled programs in $JAX_COMPILATION_CACHE_DIR or the user's cache."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        folder = cache_folder("xla")
        if folder is None:
            return
        jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def set_xla_flags(
    preset: str,
    platform: str,
    environ: MutableMapping[str, str],
    *,
    started: bool,
    profiles: bool = False,
) -> None:
    """Set XLA_FLAGS for a run, in place of those of a run before in this process.

    Args:
      preset: Name of a set of `FLAG_SETS`.
      platform: Platform that JAX is going to run on.
      environ: Environment to change.
      started: Whether JAX has started its backend, which reads XLA_FLAGS once.
      profiles: Whether steps are profiled.

    Raises:
      UserError: The backend has started with other flags.
    """
    current = environ.get("XLA_FLAGS", "").strip()
    own = _flags_before.get(current, current)
    value = xla_flags(preset, platform, {"XLA_FLAGS": own}, profiles=profiles)
    if value == current:
        return
    if started:
        profiling = "train.profile_steps with " if profiles else ""
        raise UserError(
            f"{profiling}parallel.xla_flags = {preset!r} needs XLA_FLAGS = {value!r}, "
            f"but JAX has started in this process with {current!r}, and reads them "
            "only then: "
            "start a new process (in a notebook: restart the kernel), or give "
            "parallel.xla_flags and train.profile_steps as in the run before"
        )
    environ["XLA_FLAGS"] = value
    _flags_before[value] = own


def xla_flags(
    preset: str, platform: str, environ: Mapping[str, str], *, profiles: bool = False
) -> str:
    """Return the value of XLA_FLAGS with a set of flags added.

    Args:
      preset: Name of a set of `FLAG_SETS`.
      platform: Platform that JAX is going to run on; only `gpu` gets any flags.
      environ: Environment, in which flags that the user set win.
      profiles: Whether steps are profiled.
    """
    own = environ.get("XLA_FLAGS", "")
    taken = {word.lstrip("-").split("=")[0] for word in own.split()}
    flags = dict(FLAG_SETS[preset]) if platform == "gpu" else {}
    if profiles and platform == "gpu":
        flags |= WITHOUT_COMMAND_BUFFERS
    added = [f"--{name}={value}" for name, value in flags.items() if name not in taken]
    return " ".join([*added, own]).strip()
