"""Start of JAX: platform, XLA flags, compilation cache, and host memory."""

import ctypes
import importlib.util
import os
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Literal

import jax
import pynvml

from jaxtrain import extras
from jaxtrain.console import print_stderr
from jaxtrain.errors import UserError, counted
from jaxtrain.parallel import cpu_devices
from jaxtrain.regular_file import make_private

Platform = Literal["auto", "cpu", "gpu", "tpu"]

# Parameters of glibc's mallopt, from malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8

# Value of XLA_FLAGS that this process has set -> the user's value before.
_flags_before: dict[str, str] = {}

# Command buffers hide their kernels from profilers.
WITHOUT_COMMAND_BUFFERS = {"xla_gpu_enable_command_buffer": ""}

# XLA flags for GPUs, by preset. Unknown flags would abort the process.
FLAG_SETS: dict[str, dict[str, str]] = {
    "default": {},
    "overlap": {
        # Start collectives as early as possible, and wait for them as late as possible.
        "xla_gpu_enable_latency_hiding_scheduler": "true",
        # Overlap collectives with the computation of the next iteration, in the loops
        # of gradient accumulation and `steps_per_call`.
        "xla_gpu_enable_pipelined_all_reduce": "true",
        "xla_gpu_enable_pipelined_all_gather": "true",
        "xla_gpu_enable_pipelined_reduce_scatter": "true",
        # Maximum size of combined collectives in bytes; XLA's default is 30 MiB. Large
        # combined all-reduces start later, after the last of their gradients.
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
    """Choose the platform, configure XLA and start JAX's backend.

    The first call must precede the first JAX array. Later calls only check that the
    backend was started with the same settings.

    Args:
      platform: Platform to run on. `auto` leaves the choice to JAX.
      flags: Name of a preset of XLA flags for GPUs (see `FLAG_SETS`).
      profiles: Whether steps will be profiled, which disables command buffers on GPUs.
      cpus: Number of CPU devices (`cpu_devices.offer`). None leaves JAX's default.
      connect: Function to call before the backend starts; it connects to the other
        processes.

    Raises:
      UserError: The platform is unavailable, JAX has already started with other flags,
        JAX has no CUDA support although the machine has an NVIDIA GPU, or another
        process is unreachable.
    """
    if platform != "auto":
        jax.config.update("jax_platforms", {"gpu": "cuda"}.get(platform, platform))
    started = cpu_devices.backend_started()
    set_xla_flags(flags, _expected(), os.environ, started=started, profiles=profiles)
    _enable_compilation_cache()
    if _expected() == "cpu":
        _retain_freed_memory()
    connect()
    if cpus is not None and _expected() == "cpu":
        cpu_devices.offer(cpus)
    try:
        backend = jax.default_backend()
    # JAX raises AssertionError for known platforms without devices.
    except (RuntimeError, AssertionError) as error:
        reason = f" ({error})" if str(error) else ""
        raise UserError(
            f"--platform {platform}: JAX finds no device of this platform{reason}; "
            "choose another --platform, or for an NVIDIA GPU run "
            f"{extras.install('cuda12')}"
        ) from None
    gpus = nvidia_gpus() if backend == "cpu" and not _chosen() else []
    if gpus:
        raise UserError(
            f"this machine has {counted(len(gpus), 'NVIDIA GPU')} ({gpus[0]}), but JAX "
            "has no CUDA support and would train on the CPU: install CUDA support with "
            f"{extras.install('cuda12')} (or cuda13), or give --platform cpu"
        )


def _chosen() -> str:
    """Return the platforms from --platform or $JAX_PLATFORMS, separated by commas."""
    return getattr(jax.config, "jax_platforms") or ""  # noqa: B009


def _expected() -> str:
    """Return the platform that JAX will choose, such as `gpu`, without starting JAX."""
    first = _chosen().split(",")[0]
    if first:
        return "gpu" if first in ("cuda", "rocm", "gpu") else first
    plugins = [f"jax_cuda{version}_plugin" for version in (12, 13)]
    installed = any(importlib.util.find_spec(name) for name in plugins)
    return "gpu" if installed and nvidia_gpus() else "cpu"


def nvidia_gpus() -> list[str]:
    """Return the names of the NVIDIA GPUs that the driver sees."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    count = pynvml.nvmlDeviceGetCount()
    handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(count))
    return [str(pynvml.nvmlDeviceGetName(handle)) for handle in handles]


def _retain_freed_memory() -> None:
    """Configure glibc to retain freed memory for the next step.

    By default, glibc returns the memory of activations to the kernel, which maps and
    zeroes new pages for the next step. On CPUs, this takes half of the step time of a
    small CNN (docs/decisions.md). Call this function before XLA starts its threads, as
    each thread may create an arena. It has no effect with other C libraries.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 2**30)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
        # Use only the main arena, as other arenas map new memory for every large block.
        mallopt(M_ARENA_MAX, 1)


def cache_folder(name: str) -> Path | None:
    """Create a private directory in the user's cache directory; return None on failure.

    The directory must belong to the user, and only the user may write to it, because
    later runs execute the programs cached in it.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if cache.startswith("~"):
        return None  # The user has no home directory, so "~" was not expanded.
    folder = Path(cache, "jaxtrain", name)
    try:
        if make_private(folder):
            return folder
    except OSError:
        return None
    print_stderr(
        f"warning: {folder}: other users can write to this directory, so compiled "
        "programs are not cached; set JAX_COMPILATION_CACHE_DIR or XDG_CACHE_HOME to a "
        "private directory"
    )
    return None


def _enable_compilation_cache() -> None:
    """Enable JAX's compilation cache, by default in the user's cache directory."""
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
    """Set XLA_FLAGS for a run, replacing the flags of an earlier run in this process.

    Args:
      preset: Name of a preset in `FLAG_SETS`.
      platform: Platform that JAX will use.
      environ: Environment variables to update, such as `os.environ`.
      started: Whether JAX has started its backend, which reads XLA_FLAGS only at its
        start.
      profiles: Whether steps will be profiled.

    Raises:
      UserError: The backend has started with other flags.
    """
    current = environ.get("XLA_FLAGS", "").strip()
    user_flags = _flags_before.get(current, current)
    value = xla_flags(preset, platform, {"XLA_FLAGS": user_flags}, profiles=profiles)
    if value == current:
        return
    if started:
        profiling = "train.profile_steps with " if profiles else ""
        raise UserError(
            f"{profiling}parallel.xla_flags = {preset!r} needs XLA_FLAGS = {value!r}, "
            f"but JAX is already initialized in this process with {current!r}: start a "
            "new process (in a notebook: restart the kernel), or set "
            "parallel.xla_flags and train.profile_steps to the values of the previous "
            "run"
        )
    environ["XLA_FLAGS"] = value
    _flags_before[value] = user_flags


def xla_flags(
    preset: str, platform: str, environ: Mapping[str, str], *, profiles: bool = False
) -> str:
    """Return the value of XLA_FLAGS with the flags of a preset added.

    Args:
      preset: Name of a preset in `FLAG_SETS`.
      platform: Platform that JAX will use; flags are added only for `gpu`.
      environ: Environment variables; flags in its XLA_FLAGS take precedence.
      profiles: Whether steps will be profiled.
    """
    user_flags = environ.get("XLA_FLAGS", "")
    taken = {word.lstrip("-").split("=")[0] for word in user_flags.split()}
    flags = dict(FLAG_SETS[preset]) if platform == "gpu" else {}
    if profiles and platform == "gpu":
        flags |= WITHOUT_COMMAND_BUFFERS
    added = [f"--{name}={value}" for name, value in flags.items() if name not in taken]
    return " ".join([*added, user_flags]).strip()
