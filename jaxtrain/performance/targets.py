"""The GPUs that a step can be compiled for without having one, and their facts."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from jaxtrain.errors import UserError, nearest


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """What the compiler asks of a GPU, and what bounds its speed.

    The peaks are those of dense products in the makers' data sheets.

    Attributes:
      device_kind: Name of the GPU in CUDA, and so in JAX.
      capability: CUDA's compute capability, major and minor.
      spec: Fields of XLA's `GpuTargetConfigProto.gpu_device_info` (see `_spec`).
      peaks: FLOP a second by the dtype of products, in JAX's names; a dtype that is not
        there has no tensor cores.
      link_bandwidth: Bytes a second that a GPU sends to others of its node.
      network_bandwidth: Bytes a second that a GPU sends to other nodes: the usual
        network adapters of such a node.
      links: What `link_bandwidth` is.
      source: Where the peaks and links come from.
    """

    device_kind: str
    capability: tuple[int, int]
    spec: Mapping[str, Any]
    peaks: Mapping[str, float]
    link_bandwidth: float
    network_bandwidth: float
    links: str
    source: str

    @property
    def memory(self) -> int:
        """Bytes of its memory."""
        return self.spec["device_memory_size"]

    @property
    def hbm_bandwidth(self) -> float:
        """Bytes a second that its memory gives."""
        return self.spec["memory_bandwidth"]

    def description(self) -> str:
        """Return the text of a `GpuTargetConfigProto`."""
        info = " ".join(f"{name}: {value}" for name, value in self.spec.items())
        major, minor = self.capability
        return (
            f"gpu_device_info {{ {info} cuda_compute_capability {{ major: {major} "
            f'minor: {minor} }} }} platform_name: "CUDA" '
            "dnn_version_info { major: 9 minor: 7 } "
            "runtime_version { major: 12 minor: 8 } "
            f'device_description_str: "{self.device_kind}"'
        )


def _peaks(bf16: float, tf32: float, fp32: float, fp64: float) -> Mapping[str, float]:
    """Return peaks, given in TFLOP a second, by dtype."""
    tera = {"float16": bf16, "bfloat16": bf16, "tensorfloat32": tf32}
    tera |= {"float32": fp32, "float64": fp64}
    return {name: value * 1e12 for name, value in tera.items()}


def _spec(
    cores: int,
    fpus: int,
    bandwidth: float,
    l2: int,
    clock: float,
    memory: int,
    shared: int,
    shared_optin: int,
    threads: int = 2048,
) -> Mapping[str, Any]:
    """Return fields of a GPU, with the values of openxla/xla where it has the GPU.

    They are in `xla/backends/gpu/target_config/specs`.
    """
    return {
        "threads_per_block_limit": 1024,
        "threads_per_warp": 32,
        "shared_memory_per_block": 49152,
        "block_dim_limit_x": 2147483647,
        "block_dim_limit_y": 65535,
        "block_dim_limit_z": 65535,
        "registers_per_core_limit": 65536,
        "registers_per_block_limit": 65536,
        "core_count": cores,
        "fpus_per_core": fpus,
        "memory_bandwidth": int(bandwidth),
        "l2_cache_size": l2,
        "clock_rate_ghz": clock,
        "device_memory_size": memory,
        "shared_memory_per_core": shared,
        "shared_memory_per_block_optin": shared_optin,
        "threads_per_core_limit": threads,
    }


_A100 = Gpu(
    device_kind="NVIDIA A100-SXM4-80GB",
    capability=(8, 0),
    spec=_spec(108, 64, 2039.04e9, 41943040, 1.41, 85100068864, 167936, 166912),
    peaks=_peaks(312, 156, 19.5, 19.5),
    link_bandwidth=300e9,
    network_bandwidth=25e9,
    links="NVLink 3",
    source="NVIDIA A100 data sheet (2021)",
)
_H100 = Gpu(
    device_kind="NVIDIA H100 80GB HBM3",
    capability=(9, 0),
    spec=_spec(132, 128, 3352.32e9, 52428800, 1.98, 84942979072, 233472, 232448),
    peaks=_peaks(989.4, 494.7, 66.9, 66.9),
    link_bandwidth=450e9,
    network_bandwidth=50e9,
    links="NVLink 4",
    source="NVIDIA H100 data sheet (2023), SXM",
)

# Name on the command line -> GPU.
GPUS: dict[str, Gpu] = {
    "v100": Gpu(
        device_kind="Tesla V100-SXM2-16GB",
        capability=(7, 0),
        spec=_spec(80, 64, 898.048e9, 6291456, 1.53, 16935682048, 98304, 98304),
        # Its tensor cores take float16 alone.
        peaks={"float16": 125e12, "float32": 15.7e12, "float64": 7.8e12},
        link_bandwidth=150e9,
        network_bandwidth=12.5e9,
        links="NVLink 2",
        source="NVIDIA V100 data sheet (2020)",
    ),
    "a100": _A100,
    "a100-40": replace(
        _A100,
        device_kind="NVIDIA A100-SXM4-40GB",
        spec=_spec(108, 64, 1555.2e9, 41943040, 1.41, 42331013120, 167936, 166912),
    ),
    "h100": _H100,
    "h200": replace(
        _H100,
        device_kind="NVIDIA H200 141GB HBM3e",
        spec=_spec(132, 128, 4800e9, 52428800, 1.98, 151397597184, 233472, 232448),
        source="NVIDIA H200 data sheet (2024), SXM",
    ),
    "b200": Gpu(
        device_kind="NVIDIA B200",
        capability=(10, 0),
        spec=_spec(148, 128, 7672.32e9, 132644864, 1.965, 191514411008, 233472, 232448),
        peaks=_peaks(2250, 1125, 75, 37),
        link_bandwidth=900e9,
        network_bandwidth=50e9,
        links="NVLink 5",
        source="NVIDIA HGX B200 data sheet (2024), an eighth of it",
    ),
    # Not among XLA's: from the data sheet, and what CUDA tells of Ada Lovelace.
    "l4": Gpu(
        device_kind="NVIDIA L4",
        capability=(8, 9),
        spec=_spec(58, 128, 300e9, 50331648, 2.04, 23580639232, 102400, 101376, 1536),
        peaks=_peaks(121, 60, 30.3, 0.47),
        link_bandwidth=32e9,
        network_bandwidth=12.5e9,
        links="PCIe 4 x16",
        source="NVIDIA L4 data sheet (2023)",
    ),
    "rtx6000pro": Gpu(
        device_kind="NVIDIA RTX PRO 6000 Blackwell",
        capability=(12, 0),
        spec=_spec(
            188, 128, 1792e9, 134217728, 2.6, 103079215104, 131072, 101376, 1536
        ),
        peaks=_peaks(503.8, 251.9, 125, 1.97),
        link_bandwidth=64e9,
        network_bandwidth=12.5e9,
        links="PCIe 5 x16",
        source="NVIDIA RTX Blackwell PRO GPU architecture (2025)",
    ),
}

# Not a GPU that is to be had elsewhere: what this machine has, and simulated devices.
HERE, CPU = "here", "cpu"


@dataclass(frozen=True, kw_only=True)
class Target:
    """What to compile for.

    Attributes:
      name: of `GPUS`, or here or cpu.
      num_devices: of all nodes, or the first of those here; None: all of them.
      num_nodes: that they are spread over evenly.
    """

    name: str
    num_devices: int | None = 1
    num_nodes: int = 1

    @property
    def gpu(self) -> Gpu | None:
        """The facts of the GPU; None: they are not in the table."""
        return GPUS.get(self.name)

    def __str__(self) -> str:
        if self.num_devices is None:
            return self.name
        a_node = self.num_devices // self.num_nodes
        number = f"x{a_node}" if a_node > 1 else ""
        nodes = f" on {self.num_nodes} nodes" if self.num_nodes > 1 else ""
        return f"{self.name}{number}{nodes}"


def parse_target(text: str, num_nodes: int = 1) -> Target:
    """Read a target such as h100, h100x8, cpux4 or here.

    Args:
      text: a name, and how many of it a node has.
      num_nodes: nodes of so many.

    Raises:
      UserError: there is no such target, or a number is none.
    """
    name, number = text.lower(), ""
    if name not in GPUS and (match := re.fullmatch(r"(.*?)x([0-9]{0,6})", name)):
        name, number = match.groups()
    names = (*GPUS, HERE, CPU)
    if name not in names:
        meant = nearest(name, names, "; did you mean {!r}?")
        raise UserError(
            f"--target {text}: expected {', '.join(names)}, with the number of devices "
            f"of a node as in h100x8{meant}"
        )
    count = int(number or text[-1] not in "xX")
    if num_nodes < 1 or count < 1:
        raise UserError(
            f"--target {text} --nodes {num_nodes}: expected numbers above 0"
        )
    if name == HERE and (number or num_nodes > 1):
        raise UserError(
            f"--target {text} --nodes {num_nodes}: here is what this machine has; "
            "name the GPU to choose a number"
        )
    return Target(
        name=name,
        num_devices=None if name == HERE else count * num_nodes,
        num_nodes=num_nodes,
    )


def target_of(device_kind: str) -> str | None:
    """Return the name of the GPU that CUDA calls `device_kind`; None: not known.

    Names differ in what follows the model: the size of the memory, for example. Those
    of other boards (PCIe, NVL) are slower than the table says.
    """
    words = re.split(r"[^a-z0-9]+", device_kind.lower())
    if {"pcie", "nvl"}.intersection(words):
        return None
    if words[:4] == ["nvidia", "rtx", "pro", "6000"]:
        return "rtx6000pro"
    found = [name for name in GPUS if name.partition("-")[0] in words]
    if "a100" in found:
        return "a100-40" if "40gb" in words else "a100"
    return found[0] if found else None
