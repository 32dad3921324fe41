"""Named sets of XLA flags for several GPUs (`parallel.xla_flags`)."""

from collections.abc import Mapping

# Flags of the GPU compiler, by the name of the set; jaxlib refuses to start with one
# that it does not know.
PRESETS: dict[str, dict[str, str]] = {
    "default": {},
    "overlap": {
        # Start collectives as early, and wait for them as late, as the data allow.
        "xla_gpu_enable_latency_hiding_scheduler": "true",
        # Across the passes of a loop: gradient accumulation, several steps a call.
        "xla_gpu_enable_pipelined_all_reduce": "true",
        "xla_gpu_enable_pipelined_all_gather": "true",
        "xla_gpu_enable_pipelined_reduce_scatter": "true",
        # Bytes up to which collectives are joined. All gradients in one could start
        # only after the last of them; XLA's own limit is 30 MiB.
        "xla_gpu_all_reduce_combine_threshold_bytes": str(16 * 2**20),
        "xla_gpu_all_gather_combine_threshold_bytes": str(16 * 2**20),
        "xla_gpu_reduce_scatter_combine_threshold_bytes": str(16 * 2**20),
    },
}


def xla_flags(preset: str, platform: str, environ: Mapping[str, str]) -> str:
    """Return the value of XLA_FLAGS with a set of flags added.

    Args:
      preset: a name of `PRESETS`.
      platform: that JAX is going to run on; only `gpu` gets any flags.
      environ: the environment; flags that the user set there win.
    """
    own = environ.get("XLA_FLAGS", "")
    taken = {word.lstrip("-").split("=")[0] for word in own.split()}
    flags = PRESETS[preset] if platform == "gpu" else {}
    added = [f"--{name}={value}" for name, value in flags.items() if name not in taken]
    return " ".join([*added, own]).strip()
