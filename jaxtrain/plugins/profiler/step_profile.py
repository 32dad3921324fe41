"""`profile.json`: where the time of some steps went, in words of the model."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from jaxtrain.json_files.run_id import RunId, read_of_run
from jaxtrain.json_files.write import write_digested

PROFILE = "profile.json"


@dataclass(frozen=True, kw_only=True)
class LayerTime:
    """The time of a layer, or of another part of a step, on one device.

    Attributes:
      layer: Path of the layer, such as `stage1_block1/conv1`, or name of the part.
      direction: Pass that it is of; None for what is outside of both.
      milliseconds: Milliseconds a step.
      share: Share of the traced time of the device, in 0..1.
      flops: FLOP/s of its convolutions and matrix products; None without any.
      bytes: Bytes/s that its instructions read and write; None if unknown.
    """

    layer: str
    direction: Literal["forward", "backward"] | None
    milliseconds: float
    share: float
    flops: float | None
    bytes: float | None


@dataclass(frozen=True, kw_only=True)
class StepProfile:
    """Times of the layers in some steps.

    Attributes:
      steps: Number of steps done before the first and after the last of them.
      device_kind: Name of the device in JAX.
      num_devices: Number of devices that were traced, of this process.
      milliseconds: Milliseconds of a step by the clock.
      idle_share: Share of these in which the device ran no instruction.
      trace: Folder of the trace, from the workdir.
      layers: Rows of the table, the longest time first; their shares add up to 1.
    """

    steps: tuple[int, int]
    device_kind: str
    num_devices: int
    milliseconds: float
    idle_share: float
    trace: str
    layers: tuple[LayerTime, ...]


def write_profile(workdir: Path, profile: StepProfile, run: RunId) -> None:
    """Write the table into the folder of a run."""
    write_digested(workdir / PROFILE, run.stamp(asdict(profile)))


def read_profile(workdir: Path, run: RunId | None) -> StepProfile | None:
    """Return the table in the folder of a run; None without one."""
    advice = "profile again (train --profile)"
    return read_of_run(workdir / PROFILE, StepProfile, run, advice=advice)
