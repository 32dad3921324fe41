"""Lower bound on the time of a compiled step on a GPU: roofline per kernel.

Williams et al. 2009 (https://doi.org/10.1145/1498765.1498785).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from jaxtrain.parallel.gpus import Gpu
from jaxtrain.plugins.plan.facts import Facts

# Assumed seconds between the starts of dependent kernels in a CUDA graph. Kernels
# launched one by one from the host take longer.
LAUNCH_SECONDS = 1.5e-6

COMPUTE, MEMORY, LAUNCHES = "FLOPs", "HBM bytes", "launches"
LINKS, NETWORK = "links", "network"


@dataclass(frozen=True)
class Bound:
    """Lower bound on the time of a step.

    Attributes:
      alone: Resource -> seconds of a step that is limited only by this resource.
      rates: Resource -> description of its assumed bandwidth, FLOP/s or latency.
      step_seconds: Larger of the roofline time of all kernels and the time of all ring
        collectives, in seconds: at best, collectives overlap with kernels.
      bound_by: Resource with the largest share of `step_seconds`.
    """

    alone: Mapping[str, float]
    rates: Mapping[str, str]
    step_seconds: float
    bound_by: str


def bound(facts: Facts, gpu: Gpu, devices_a_node: int) -> Bound:
    """Compute the lower bound on the time of a step.

    Args:
      facts: Kernels and collectives of the compiled step.
      gpu: GPU that the step is compiled for.
      devices_a_node: Number of GPUs per node, connected at `gpu.link_bandwidth`.
    """
    # Dtypes missing in `gpu.peaks` are assumed to run at the float32 peak.
    products, missing = facts.products, ""
    if products not in gpu.peaks:
        products, missing = "float32", f" (the peak of {products} is unknown)"
    peak = gpu.peaks[products]
    rates = {
        COMPUTE: f"at {peak / 1e12:,.0f} TFLOP/s of {products}{missing}",
        MEMORY: f"at {gpu.hbm_bandwidth / 1e9:,.0f} GB/s, without cache hits",
        LAUNCHES: f"at {1e6 * LAUNCH_SECONDS:g} us per dependent kernel",
        LINKS: f"at {gpu.link_bandwidth / 1e9:g} GB/s of {gpu.links}, as rings",
        NETWORK: f"at {gpu.network_bandwidth / 1e9:g} GB/s per network adapter",
    }
    alone = dict.fromkeys(rates, 0.0)
    kernels: dict[str, float] = dict.fromkeys((COMPUTE, MEMORY, LAUNCHES), 0.0)
    for num_bytes, flops, runs in facts.kernels:
        seconds = {
            COMPUTE: flops / peak,
            MEMORY: num_bytes / gpu.hbm_bandwidth,
            LAUNCHES: LAUNCH_SECONDS,
        }
        longest = max(seconds, key=lambda name: seconds[name])
        kernels[longest] += runs * seconds[longest]
        for name, value in seconds.items():
            alone[name] += runs * value
    for found in facts.exchanges:
        nodes = {device // devices_a_node for device in found.group}
        # In a ring, each node sends to only one other node. All network adapters of the
        # node share this traffic.
        sharing = len(found.group) / len(nodes)
        if len(nodes) == 1:
            alone[LINKS] += found.wire_bytes / gpu.link_bandwidth
        else:
            alone[NETWORK] += found.wire_bytes / (sharing * gpu.network_bandwidth)
    sent = {name: alone[name] for name in (LINKS, NETWORK)}
    larger = max(kernels, sent, key=lambda part: sum(part.values()))
    return Bound(
        alone=alone,
        rates=rates,
        step_seconds=sum(larger.values()),
        bound_by=max(larger, key=lambda name: larger[name]),
    )
