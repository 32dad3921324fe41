"""Compilation targets: GPUs that need not be present, or this machine's devices."""

import re
from dataclasses import dataclass

from jaxtrain.errors import UserError, nearest
from jaxtrain.parallel.gpus import GPUS, Gpu

# Targets that are not GPU names: this machine's devices, and simulated CPU devices.
HERE, CPU = "here", "cpu"


@dataclass(frozen=True, kw_only=True)
class Target:
    """Compilation target.

    Attributes:
      name: Key of `GPUS`, or `here` or `cpu`.
      num_devices: Total number of devices on all nodes; None uses all devices of this
        machine.
      num_nodes: Number of nodes, all of the same size.
    """

    name: str
    num_devices: int | None = 1
    num_nodes: int = 1

    @property
    def gpu(self) -> Gpu | None:
        """Specification of the GPU; None for `here` and `cpu`."""
        return GPUS.get(self.name)

    def __str__(self) -> str:
        if self.num_devices is None:
            return self.name
        a_node = self.num_devices // self.num_nodes
        number = f"x{a_node}" if a_node > 1 else ""
        nodes = f" on {self.num_nodes} nodes" if self.num_nodes > 1 else ""
        return f"{self.name}{number}{nodes}"


def parse_target(text: str, num_nodes: int = 1) -> Target:
    """Parse a target such as h100, h100x8, cpux4 or here.

    Args:
      text: Name, and number of devices per node.
      num_nodes: Number of nodes.

    Raises:
      UserError: The target is unknown, or a number is invalid.
    """
    name, number = text.lower(), ""
    if name not in GPUS and (match := re.fullmatch(r"(.*?)x([0-9]{0,6})", name)):
        name, number = match.groups()
    names = (*GPUS, HERE, CPU)
    if name not in names:
        meant = nearest(name, names, "; did you mean {!r}?")
        raise UserError(
            f"--target {text}: expected {', '.join(names)}, optionally with the number "
            f"of devices per node, as in h100x8{meant}"
        )
    count = int(number or text[-1] not in "xX")
    if num_nodes < 1 or count < 1:
        raise UserError(
            f"--target {text} --nodes {num_nodes}: expected numbers above 0"
        )
    if name == HERE and (number or num_nodes > 1):
        raise UserError(
            f"--target {text} --nodes {num_nodes}: `here` means all devices of this "
            "machine; to set another number, give the name of a GPU, or `cpu`"
        )
    return Target(
        name=name,
        num_devices=None if name == HERE else count * num_nodes,
        num_nodes=num_nodes,
    )
