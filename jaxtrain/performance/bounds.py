"""How fast a compiled step can be at best on a GPU: the roofline of its kernels.

Williams et al. 2009 (https://doi.org/10.1145/1498765.1498785), one roof a kernel.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jaxtrain.performance.collectives import Collective
from jaxtrain.performance.facts import Facts
from jaxtrain.performance.targets import Gpu

# From the start of a kernel to that of the next that depends on it, in a CUDA graph.
# Assumed: with launches one by one from the host it is longer.
LAUNCH_SECONDS = 1.5e-6

COMPUTE, MEMORY, LAUNCHES = "FLOPs", "HBM bytes", "launches"
LINKS, NETWORK = "links", "network"


@dataclass(frozen=True)
class Bound:
    """The least seconds of a step.

    Attributes:
      alone: what each resource would take if it were all that counts.
      kernels: the sum over the kernels, each bound by what takes it longest.
      exchanges: that of the collectives, as rings, hidden behind nothing.
      bound_by: the resource that counts most in the larger of the two.
    """

    alone: Mapping[str, float]
    kernels: float
    exchanges: float
    bound_by: str

    @property
    def step_seconds(self) -> float:
        """The larger of the two: at best one hides behind the other."""
        return max(self.kernels, self.exchanges)


def bound(facts: Facts, gpu: Gpu, devices_a_node: int) -> Bound:
    """Bound the time of a step.

    Args:
      facts: of the compiled step.
      gpu: that it is compiled for.
      devices_a_node: those that `link_bandwidth` joins.
    """
    _, peak = products_of(facts, gpu)
    each = {COMPUTE: 0.0, MEMORY: 0.0, LAUNCHES: 0.0}
    alone = dict(each)
    for num_bytes, flops, runs in facts.kernels:
        seconds = {
            COMPUTE: flops / peak,
            MEMORY: num_bytes / gpu.hbm_bandwidth,
            LAUNCHES: LAUNCH_SECONDS,
        }
        longest = max(seconds, key=lambda name: seconds[name])
        each[longest] += runs * seconds[longest]
        for name, value in seconds.items():
            alone[name] += runs * value
    alone |= _exchange(facts.exchanges, gpu, devices_a_node)
    kernels, exchanges = sum(each.values()), alone[LINKS] + alone[NETWORK]
    if exchanges > kernels:
        each = {name: alone[name] for name in (LINKS, NETWORK)}
    by = max(each, key=lambda name: each[name])
    return Bound(alone, kernels, exchanges, by)


def products_of(facts: Facts, gpu: Gpu) -> tuple[str, float]:
    """Return the dtype of products, and how many FLOP a second there are of it.

    What a GPU has no faster products of, it computes as float32.
    """
    name = facts.products if facts.products in gpu.peaks else "float32"
    return name, gpu.peaks[name]


def _exchange(
    exchanges: Sequence[Collective], gpu: Gpu, devices_a_node: int
) -> dict[str, float]:
    """Return the seconds on the links of a node, and on the network between nodes.

    A ring over several devices of each node crosses to the next node once: each network
    adapter carries the share of one of these devices.
    """
    seconds = {LINKS: 0.0, NETWORK: 0.0}
    for found in exchanges:
        nodes = {device // devices_a_node for device in found.group}
        if len(nodes) == 1:
            seconds[LINKS] += found.wire_bytes / gpu.link_bandwidth
        else:
            sharing = len(found.group) / len(nodes)
            seconds[NETWORK] += found.wire_bytes / (sharing * gpu.network_bandwidth)
    return seconds
