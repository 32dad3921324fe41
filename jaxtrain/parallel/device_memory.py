"""Memory of devices and host, and memory requirements of compiled programs."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from jaxtrain.errors import UserError

GIB = 2**30


def peak_bytes(program: jax.stages.Compiled) -> int:
    """Return the peak memory of a program on each device, in bytes.

    This includes arguments and outputs. The result is 0 for backends without memory
    analysis.
    """
    plan: Any = program.memory_analysis()
    if plan is None:
        return 0
    return (
        plan.argument_size_in_bytes
        + plan.output_size_in_bytes
        + plan.temp_size_in_bytes
        - plan.alias_size_in_bytes
    )


def check_fits(program: jax.stages.Compiled, purpose: str, fix: str) -> None:
    """Check that a compiled program fits into the memory of its devices.

    Memory in use is ignored, as some of it is freed before the program runs.

    Args:
      program: Program that XLA has compiled.
      purpose: Purpose of the program, such as `a training step`.
      fix: Advice to save memory, for the message.

    Raises:
      UserError: The program needs more memory than a device has.
    """
    outputs = jax.tree.leaves(program.output_shardings)
    if not outputs:  # For example, if no parameters are trained.
        return
    devices = outputs[0].addressable_devices
    needed, present = peak_bytes(program), usable_bytes(devices)
    if needed > present:
        raise UserError(
            f"{purpose} needs {needed / GIB:.3g} GiB of memory per device, but each "
            f"device has {present / GIB:.3g} GiB: {fix}"
        )


def usable_bytes(devices: Any) -> int:
    """Return the memory in bytes that JAX may use on each of the devices."""
    if any(device.platform == "cpu" for device in devices):
        return total_bytes() // len(devices)
    all_stats = [device.memory_stats() or {} for device in devices]
    return min(stats.get("bytes_limit", 2**62) for stats in all_stats)


def available_bytes(root: Path = Path("/")) -> int:
    """Return the available memory of the host or, if less, of a cgroup, in bytes.

    Args:
      root: Root directory, which contains `proc` and `sys`.
    """
    left = (limit - used for limit, used in _cgroups(root))
    return min(_host_bytes(root, "MemAvailable"), *left, 2**62)


def total_bytes(root: Path = Path("/")) -> int:
    """Return the total of usable memory and the host's swap, in bytes.

    Usable memory is the host's memory or, if less, the smallest limit of a cgroup.

    Args:
      root: Root directory, which contains `proc` and `sys`.
    """
    limits = (limit for limit, _ in _cgroups(root))
    swap = _host_bytes(root, "SwapTotal")
    return min(_host_bytes(root, "MemTotal"), *limits, 2**62) + swap


def _host_bytes(root: Path, name: str) -> int:
    match = re.search(
        rf"{name}:\s+(\d+) kB", (root / "proc/meminfo").read_text(encoding="utf-8")
    )
    assert match is not None, "/proc/meminfo has MemAvailable since Linux 3.14"
    return int(match[1]) * 1024


def _cgroups(root: Path) -> Iterator[tuple[int, int]]:
    """Yield (memory limit, memory usage) in bytes for each cgroup of this process.

    Versions 1 and 2 are supported. In a container, the directory of the process's
    cgroup may not exist, but the root of the hierarchy does.
    """
    mounts = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        number, kinds, path = line.split(":", 2)
        if number == "0":
            mount, limit, used, cached = mounts, "memory.max", "memory.current", ""
        elif "memory" in kinds.split(","):
            mount, limit = mounts / "memory", "memory.limit_in_bytes"
            used, cached = "memory.usage_in_bytes", "total_"
        else:
            continue
        cgroup = mount / path.lstrip("/")
        for folder in [cgroup, *cgroup.parents]:
            if not folder.is_relative_to(mount):
                break
            limit_text = _read(folder / limit)
            if limit_text.isdecimal():
                # Subtract the inactive page cache, which the kernel can reclaim.
                stat = _read(folder / "memory.stat")
                match = re.search(rf"^{cached}inactive_file (\d+)", stat, re.MULTILINE)
                pages = int(match[1]) if match else 0
                yield int(limit_text), int(_read(folder / used) or 0) - pages


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
