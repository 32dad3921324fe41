"""Known GPUs: compiler targets, and peak FLOP/s and bandwidths for roofline bounds."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Fields of XLA's `GpuTargetConfigProto.gpu_device_info`: `COMMON` has the fields that
# are equal for all GPUs; `FIELDS` has the names of the other fields, whose values are
# the columns of `SPECS` from the third on.
COMMON = (
    "threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 "
    "block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535 "
    "registers_per_core_limit: 65536 registers_per_block_limit: 65536"
)
FIELDS = (
    *("core_count", "fpus_per_core", "memory_bandwidth", "l2_cache_size"),
    *("clock_rate_ghz", "device_memory_size", "shared_memory_per_core"),
    *("shared_memory_per_block_optin", "threads_per_core_limit"),
)
# Columns: name, compute capability, and values of `FIELDS`. The values are from
# `xla/backends/gpu/target_config/specs` in openxla/xla and, for the L4, from its data
# sheet and CUDA's limits for Ada Lovelace.
SPECS = """
v100        7.0  80  64  898048000000   6291456 1.53   16935682048  98304  98304 2048
a100        8.0 108  64 2039040000000  41943040 1.41   85100068864 167936 166912 2048
a100-40     8.0 108  64 1555200000000  41943040 1.41   42331013120 167936 166912 2048
h100        9.0 132 128 3352320000000  52428800 1.98   84942979072 233472 232448 2048
h200        9.0 132 128 4800000000000  52428800 1.98  151397597184 233472 232448 2048
b200       10.0 148 128 7672320000000 132644864 1.965 191514411008 233472 232448 2048
l4          8.9  58 128  300000000000  50331648 2.04   23580639232 102400 101376 1536
rtx6000pro 12.0 188 128 1792000000000 134217728 2.6   103079215104 131072 101376 1536
"""
# Columns: name; name in CUDA; interconnect in a node; GB/s to GPUs of the node; GB/s to
# other nodes; dense TFLOP/s for each of `DTYPES`. From NVIDIA's data sheets: V100
# (2020; tensor cores for float16 only), A100 (2021), H100 (2023, SXM), H200 (2024,
# SXM), HGX B200 (2024, an eighth of the 8-GPU system), L4 (2023), RTX Blackwell PRO GPU
# architecture (2025).
SPEEDS = """
v100        Tesla V100-SXM2-16GB           NVLink 2    150  12.5  125 - 15.7 7.8
a100        NVIDIA A100-SXM4-80GB          NVLink 3    300  25    312 156 19.5 19.5
a100-40     NVIDIA A100-SXM4-40GB          NVLink 3    300  25    312 156 19.5 19.5
h100        NVIDIA H100 80GB HBM3          NVLink 4    450  50    989.4 494.7 66.9 66.9
h200        NVIDIA H200 141GB HBM3e        NVLink 4    450  50    989.4 494.7 66.9 66.9
b200        NVIDIA B200                    NVLink 5    900  50    2250 1125 75 37
l4          NVIDIA L4                      PCIe 4 x16  32   12.5  121 60 30.3 0.47
rtx6000pro  NVIDIA RTX PRO 6000 Blackwell  PCIe 5 x16  64   12.5  503.8 251.9 125 1.97
"""
# Tensor cores with tensorfloat32 support run bfloat16 as fast as float16.
DTYPES = ("float16", "tensorfloat32", "float32", "float64")


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """Compiler target, peak FLOP/s and bandwidths of a GPU.

    Attributes:
      device_kind: Name of the GPU in CUDA and in `jax.Device.device_kind`.
      description: Compiler target, a `GpuTargetConfigProto` in text format.
      memory: Size of the device memory in bytes.
      hbm_bandwidth: Bandwidth of the device memory in bytes per second.
      peaks: Peak FLOP/s of dense matrix products, by name of the dtype. 16-bit dtypes
        and tensorfloat32 are missing if the tensor cores do not support them.
      links: Type of the interconnect between GPUs of a node.
      link_bandwidth: Send bandwidth to GPUs of the same node, in bytes per second.
      network_bandwidth: Send bandwidth to other nodes in bytes per second, with usual
        network adapters.
    """

    device_kind: str
    description: str
    memory: int
    hbm_bandwidth: float
    peaks: Mapping[str, float]
    links: str
    link_bandwidth: float
    network_bandwidth: float


def _gpu(capability: str, values: Sequence[str], speeds: Sequence[str]) -> Gpu:
    """Create a GPU from its rows in `SPECS` and `SPEEDS`."""
    spec = dict(zip(FIELDS, values, strict=True))
    fields = " ".join(f"{name}: {value}" for name, value in spec.items())
    kind, links, link, network, tera = speeds
    pairs = zip(DTYPES, tera.split(), strict=True)
    peaks = {dtype: float(peak) * 1e12 for dtype, peak in pairs if peak != "-"}
    if "tensorfloat32" in peaks:
        peaks["bfloat16"] = peaks["float16"]
    major, minor = capability.split(".")
    return Gpu(
        device_kind=kind,
        description=f"gpu_device_info {{ {COMMON} {fields} "
        f"cuda_compute_capability {{ major: {major} minor: {minor} }} }} "
        'platform_name: "CUDA" dnn_version_info { major: 9 minor: 7 } '
        "runtime_version { major: 12 minor: 8 } "
        f'device_description_str: "{kind}"',
        memory=int(spec["device_memory_size"]),
        hbm_bandwidth=float(spec["memory_bandwidth"]),
        peaks=peaks,
        links=links,
        link_bandwidth=float(link) * 1e9,
        network_bandwidth=float(network) * 1e9,
    )


_SPECS = (row.split() for row in SPECS.strip().splitlines())
_SPEEDS = dict(
    re.split(" {2,}", row, maxsplit=1) for row in SPEEDS.strip().splitlines()
)
# Name on the command line -> GPU.
GPUS = {
    name: _gpu(capability, values, re.split(" {2,}", _SPEEDS[name]))
    for name, capability, *values in _SPECS
}


def gpu_name(device_kind: str) -> str | None:
    """Return the key in `GPUS` of the GPU `device_kind`, or None if it is unknown.

    Suffixes of CUDA's names, such as the memory size, may differ from `device_kind` in
    `GPUS`. PCIe and NVL boards count as unknown, as they are slower than the SXM boards
    in `SPECS`.
    """
    words = re.split(r"[^a-z0-9]+", device_kind.lower())
    if {"pcie", "nvl"}.intersection(words):
        return None
    if words[:4] == ["nvidia", "rtx", "pro", "6000"]:
        return "rtx6000pro"
    matches = [name for name in GPUS if name.partition("-")[0] in words]
    if "a100" in matches:
        return "a100-40" if "40gb" in words else "a100"
    return matches[0] if matches else None


def peak_flops(device_kind: str, products: str) -> float | None:
    """Return the peak FLOP/s of dense matrix products; None for unknown devices.

    Args:
      device_kind: Name of the device in JAX (`jax.Device.device_kind`).
      products: Name of the dtype in which products are computed, such as `bfloat16`.
    """
    name = gpu_name(device_kind)
    if name is None:
        return None
    # Without tensor cores for the dtype, the GPU computes in float32.
    peaks = GPUS[name].peaks
    return peaks.get(products, peaks["float32"])
