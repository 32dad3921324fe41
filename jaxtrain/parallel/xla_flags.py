"""Named sets of XLA flags for several GPUs (`parallel.xla_flags`)."""

from collections.abc import Mapping, MutableMapping

from jaxtrain.errors import UserError

# Values of XLA_FLAGS that this process has set -> what the user had set before.
_before: dict[str, str] = {}

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


def set_xla_flags(
    preset: str, platform: str, environ: MutableMapping[str, str], *, started: bool
) -> None:
    """Set XLA_FLAGS for a run, in place of those of a run before in this process.

    Args:
      preset: Name of a set of `PRESETS`.
      platform: Platform that JAX is going to run on.
      environ: Environment to change.
      started: Whether JAX has started its backend, which reads XLA_FLAGS once.

    Raises:
      UserError: The backend has started with other flags.
    """
    current = environ.get("XLA_FLAGS", "").strip()
    own = _before.get(current, current)
    value = xla_flags(preset, platform, {"XLA_FLAGS": own})
    if value == current:
        return
    if started:
        raise UserError(
            f"parallel.xla_flags = {preset!r} needs XLA_FLAGS = {value!r}, but JAX has "
            f"started in this process with {current!r}, and reads them only then: "
            "start a new process (in a notebook: restart the kernel), or give "
            "parallel.xla_flags as in the run before"
        )
    environ["XLA_FLAGS"] = value
    _before[value] = own


def xla_flags(preset: str, platform: str, environ: Mapping[str, str]) -> str:
    """Return the value of XLA_FLAGS with a set of flags added.

    Args:
      preset: Name of a set of `PRESETS`.
      platform: Platform that JAX is going to run on; only `gpu` gets any flags.
      environ: Environment, in which flags that the user set win.
    """
    own = environ.get("XLA_FLAGS", "")
    taken = {word.lstrip("-").split("=")[0] for word in own.split()}
    flags = PRESETS[preset] if platform == "gpu" else {}
    added = [f"--{name}={value}" for name, value in flags.items() if name not in taken]
    return " ".join([*added, own]).strip()
