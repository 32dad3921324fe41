"""Will a config fit on a target, what does a step take there, how fast can it be."""

from dataclasses import dataclass
from typing import Any

import jax

from jaxtrain.checkpoints.saver import num_copies
from jaxtrain.config import Config
from jaxtrain.performance.bounds import Bound
from jaxtrain.performance.facts import Facts
from jaxtrain.performance.targets import Gpu, Target
from jaxtrain.run.timetable import Timetable


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run of a config takes on a target.

    Attributes:
      config: settled.
      target: that it is compiled for.
      source: of the data.
      facts: of the compiled step.
      timetable: of the run.
      image_bytes: of an image as the host hands it on.
      usable_bytes: those of a device that JAX works with.
      gpu: what is known of the devices; None: nothing.
      bound: on the time of a step; None: nothing is known of the devices.
    """

    config: Config
    target: Target
    source: str
    facts: Facts
    timetable: Timetable
    image_bytes: int
    usable_bytes: int
    gpu: Gpu | None
    bound: Bound | None

    @property
    def fits(self) -> bool:
        return self.facts.peak_bytes <= self.usable_bytes

    @property
    def images_per_second(self) -> float | None:
        """The bound, of all devices."""
        return self.bound and self.facts.batch_size / self.bound.step_seconds

    @property
    def hours(self) -> float | None:
        """Of all training steps at the bound; evaluations and the start come on top.

        Where the first steps are smaller (`varies`), each counts as one of the last.
        """
        steps = self.timetable.total_steps
        return self.bound and steps * self.bound.step_seconds / 3600

    @property
    def varies(self) -> bool:
        """Whether first steps are of smaller images, or train fewer layers."""
        times = self.timetable
        return len(times.image_sizes) > 1 or times.unfreeze_step is not None

    @property
    def disk_bytes(self) -> int:
        """What the run demands on the disk of its checkpoints: see `check_space`."""
        return self.num_copies * self.facts.checkpoint_bytes

    @property
    def num_copies(self) -> int:
        """Checkpoints that may lie on the disk at once."""
        return num_copies(self.config.checkpoint, self.timetable.total_steps)

    def to_json(self, price: float | None = None) -> dict[str, Any]:
        """Return what plan.json holds; `price` is that of a device and an hour."""
        facts, roof = self.facts, self.bound
        hours = self.hours
        return {
            "target": str(self.target),
            "source": self.source,
            "device_kind": facts.device_kind,
            "num_devices": facts.num_devices,
            "num_nodes": self.target.num_nodes,
            "mesh": facts.mesh,
            "preset": self.config.parallel.preset,
            "precision": self.config.precision,
            "batch_size": facts.batch_size,
            "num_params": facts.num_params,
            "fits": self.fits,
            "state_bytes": facts.state_bytes,
            "input_bytes": facts.input_bytes,
            "peak_bytes": facts.peak_bytes,
            "usable_bytes": self.usable_bytes,
            "hbm_bytes": facts.hbm_bytes,
            "num_kernels": facts.num_kernels,
            "flops": facts.flops,
            "collectives": facts.collectives,
            "wire_bytes": facts.wire_bytes,
            "minimum_wire_bytes": facts.minimum_bytes,
            "bound_seconds": roof and dict(roof.alone),
            "step_seconds_bound": roof and roof.step_seconds,
            "images_per_second_bound": self.images_per_second,
            "bound_by": roof and roof.bound_by,
            "steps": self.timetable.total_steps,
            "hours_bound": hours,
            "cost_bound": hours and price and hours * price * facts.num_devices,
            "checkpoint_bytes": facts.checkpoint_bytes,
            "disk_bytes": self.disk_bytes,
            "versions": {"jax": jax.__version__},
        }
