"""How much memory a step may take on the devices of this machine."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jax

from jaxtrain.errors import UserError
from jaxtrain.parallel import devices

# The part of the host's available memory that the devices of a CPU may share. The rest
# is for Python, its libraries and the loader.
MARGIN = 0.9
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
BINARY_UNITS = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


class DeviceMemory(NamedTuple):
    """The devices of a process, and the bytes that each has for a step."""

    num_devices: int
    device_kind: str
    usable_bytes: int


def look(flags: str) -> DeviceMemory:
    """Return what this process has; to be called in one that has allocated nothing.

    Args:
      flags: Name of a set of XLA flags, as of `parallel.xla_flags`.
    """
    devices.start("auto", flags=flags)
    device, count = jax.devices()[0], jax.device_count()
    if device.platform == "cpu":
        usable = int(MARGIN * available_bytes()) // count
    else:
        usable = device.memory_stats()["bytes_limit"]
    return DeviceMemory(count, device.device_kind, usable)


def available_bytes(root: Path = Path("/")) -> int:
    """Return the host's available memory, or what is left of a cgroup's limit.

    Args:
      root: Folder that holds `proc` and `sys`.
    """
    return min(_host_bytes(root), *_left_in_cgroups(root), 2**62)


def _host_bytes(root: Path) -> int:
    match = re.search(r"MemAvailable:\s+(\d+) kB", (root / "proc/meminfo").read_text())
    assert match is not None, "Linux has it since 3.14"
    return int(match[1]) * 1024


def _left_in_cgroups(root: Path) -> Iterator[int]:
    """Yield what is left of each limit of this process, in versions 1 and 2.

    A container may not see the folder of its own cgroup, but sees it as the root.
    """
    mounts = root / "sys/fs/cgroup"
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        number, kinds, path = line.split(":", 2)
        if number == "0":
            mount, limit, used, cached = mounts, "memory.max", "memory.current", ""
        elif "memory" in kinds.split(","):
            mount, limit = mounts / "memory", "memory.limit_in_bytes"
            used, cached = "memory.usage_in_bytes", "total_"
        else:
            continue
        own = mount / path.lstrip("/")
        for folder in [own, *own.parents]:
            if not folder.is_relative_to(mount):
                break
            limit_text = _read(folder / limit)
            if limit_text.isdecimal():
                # Pages of files are given back before the limit is reached.
                stat = _read(folder / "memory.stat")
                match = re.search(rf"^{cached}inactive_file (\d+)", stat, re.MULTILINE)
                pages = int(match[1]) if match else 0
                yield int(limit_text) - int(_read(folder / used) or 0) + pages


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def parse_bytes(option: str, text: str) -> int:
    """Read a size such as 200MB, 16GiB or a number of bytes.

    Raises:
      UserError: this is no size above 0.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?) *(?:([kmgt]i?)?b?)", text.strip().lower())
    size = 0
    if match:
        size = int(float(match[1]) * (UNITS | BINARY_UNITS)[match[2] or ""])
    if size < 1:
        raise UserError(f"{option} {text}: expected a size such as 200MB or 16GiB")
    return size
