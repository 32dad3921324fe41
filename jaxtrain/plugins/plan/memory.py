"""Usable memory of this machine's devices."""

import re
from typing import NamedTuple

import jax

from jaxtrain.errors import UserError
from jaxtrain.parallel import devices
from jaxtrain.parallel.device_memory import available_bytes

# Fraction of the available host memory that CPU devices may use; the rest is for
# Python, libraries and the data loader.
MARGIN = 0.9
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
BINARY_UNITS = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


class DeviceMemory(NamedTuple):
    """Number and kind of the devices of a process, and usable bytes per device."""

    num_devices: int
    device_kind: str
    usable_bytes: int


def look(flags: str) -> DeviceMemory:
    """Return number, kind and usable memory of the devices.

    Must be called before the process allocates arrays.

    Args:
      flags: Name of a set of XLA flags, a value of `parallel.xla_flags`.
    """
    devices.start("auto", flags=flags)
    device, count = jax.devices()[0], jax.device_count()
    if device.platform == "cpu":
        usable = int(MARGIN * available_bytes()) // count
    else:
        usable = device.memory_stats()["bytes_limit"]
    return DeviceMemory(count, device.device_kind, usable)


def parse_bytes(option: str, text: str) -> int:
    """Parse a size such as 200MB, 16GiB or a number of bytes.

    Raises:
      UserError: The size is invalid or not positive.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?) *(?:([kmgt]i?)?b?)", text.strip().lower())
    size = 0
    if match:
        size = int(float(match[1]) * (UNITS | BINARY_UNITS)[match[2] or ""])
    if size < 1:
        raise UserError(f"{option} {text}: expected a size such as 200MB or 16GiB")
    return size
