"""The platform that JAX runs on, its memory, and the cache of compiled programs."""

import ctypes
import importlib.util
import os
from pathlib import Path
from typing import Literal

import jax
import pynvml
from jax._src import xla_bridge

from jaxtrain.errors import UserError, counted
from jaxtrain.parallel.xla_flags import set_xla_flags
from jaxtrain.processes import distributed
from jaxtrain.processes.distributed import Processes, Timeouts

Platform = Literal["auto", "cpu", "gpu", "tpu"]

# Options of glibc's mallopt, from malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8


def start(
    platform: Platform,
    *,
    flags: str = "default",
    processes: Processes | None = None,
    timeouts: Timeouts = Timeouts(),  # noqa: B008 (frozen)
) -> None:
    """Choose the platform, set XLA up and connect this process with the others.

    Must come before JAX makes its first array; after that it checks that nothing else
    is wanted.

    Args:
      platform: Platform to run on.
      flags: Named set of XLA flags, for GPUs.
      processes: Processes of the run; None says that this one is alone.
      timeouts: Limits on the wait for the other processes.

    Raises:
      UserError: the platform is missing, JAX has started with other flags, it fell
        back to the CPU of a machine that has an NVIDIA GPU, or not all processes came.
    """
    if platform != "auto":
        jax.config.update("jax_platforms", {"gpu": "cuda"}.get(platform, platform))
    started = xla_bridge.backends_are_initialized()
    set_xla_flags(flags, _expected(), os.environ, started=started)
    _enable_compilation_cache()
    if _expected() == "cpu":
        _keep_freed_memory()
    distributed.start(processes, timeouts)
    try:
        backend = jax.default_backend()
    # JAX asserts where the platform is known and no device of it is found.
    except (RuntimeError, AssertionError) as error:
        reason = f" ({error})" if str(error) else ""
        raise UserError(
            f"--platform {platform}: JAX finds no such device{reason}. For an NVIDIA "
            "GPU: pip install -e '.[cuda12]'"
        ) from None
    gpus = nvidia_gpus() if backend == "cpu" and not _chosen() else []
    if gpus:
        raise UserError(
            f"this machine has {counted(len(gpus), 'NVIDIA GPU')} ({gpus[0]}), but JAX "
            "has no CUDA support and would train on the CPU. Install it with "
            "pip install -e '.[cuda12]' (or cuda13), or choose the CPU with "
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
    """Make a folder in the user's cache; return None where nothing can be kept."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if cache.startswith("~"):
        return None  # The user has no home.
    folder = Path(cache, "jaxtrain", name)
    try:
        # Private: a program in it is code that a later run executes.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return None
    return folder


def _enable_compilation_cache() -> None:
    """Cache compiled programs in $JAX_COMPILATION_CACHE_DIR or the user's cache."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        folder = cache_folder("xla")
        if folder is None:
            return
        jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
