"""`profile.json`: time of profiled steps by layer."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from jaxtrain.json_files.run_id import RunId, read_of_run
from jaxtrain.json_files.write import write_digested

PROFILE = "profile.json"


@dataclass(frozen=True, kw_only=True)
class LayerTime:
    """Time of a layer, or of another part of a step, averaged over devices.

    Attributes:
      layer: Path of the layer, such as `stage1_block1/conv1`, or name of the part.
      direction: Forward or backward pass; None for parts such as the optimizer.
      milliseconds: Milliseconds per step.
      share: Fraction of the traced device time, in 0..1.
      flops: FLOP/s of convolutions and matrix products; None without FLOPs.
      bytes: Bytes/s read and written; None if unknown.
    """

    layer: str
    direction: Literal["forward", "backward"] | None
    milliseconds: float
    share: float
    flops: float | None
    bytes: float | None


@dataclass(frozen=True, kw_only=True)
class StepProfile:
    """Layer times of profiled steps.

    Attributes:
      steps: Numbers of completed steps at the start and at the end of the trace.
      device_kind: Name of the device in JAX.
      num_devices: Number of traced devices of this process.
      milliseconds: Wall time of a step in milliseconds.
      idle_share: Fraction of the wall time without device instructions.
      trace: Directory of the trace, relative to the workdir.
      layers: Time of each layer and other part, longest first.
    """

    steps: tuple[int, int]
    device_kind: str
    num_devices: int
    milliseconds: float
    idle_share: float
    trace: str
    layers: tuple[LayerTime, ...]


def write_profile(workdir: Path, profile: StepProfile, run: RunId) -> None:
    """Write the profile to the workdir of a run."""
    write_digested(workdir / PROFILE, run.stamp(asdict(profile)))


def read_profile(workdir: Path, run: RunId | None) -> StepProfile | None:
    """Read the profile of a run, or None if it was not profiled."""
    advice = "profile again (train --profile)"
    return read_of_run(workdir / PROFILE, StepProfile, run, advice=advice)
