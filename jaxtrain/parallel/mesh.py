"""Device mesh: named axes over the devices of all processes."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from jaxtrain.config import MESH_AXES, ParallelConfig, Preset
from jaxtrain.errors import UserError, counted

# Axes that shard the batch.
BATCH_AXES = ("data", "fsdp")
# Axes that shard the height and the width of images.
SPATIAL_AXES = ("spatial", "spatial_width")

# Preset -> default axis sizes. -1 means all remaining devices; axes that are not listed
# have size 1.
PRESETS: dict[Preset, dict[str, int]] = {
    "data_parallel": {"data": -1},
    "fsdp": {"fsdp": -1},
    "zero1": {"fsdp": -1},
    "tensor": {"model": -1},
    "spatial": {"spatial": -1},
    "2d": {"fsdp": -1, "model": 2},
}


def make_mesh(
    config: ParallelConfig,
    devices: Sequence[Any] | None = None,
    seen: str = "that JAX sees",
) -> Mesh:
    """Create a device mesh with the axis sizes from `axis_sizes`.

    Args:
      config: Section `parallel` of the config.
      devices: Devices of the mesh. Defaults to `jax.devices()`.
      seen: Words after "devices" in error messages.
    """
    devices = jax.devices() if devices is None else devices
    sizes = axis_sizes(config, len(devices), seen)
    # Explicit axes, JAX's default, do not support gradients of convolutions.
    return Mesh(
        np.asarray(devices).reshape(*sizes.values()),
        MESH_AXES,
        axis_types=(AxisType.Auto,) * len(MESH_AXES),
    )


def axis_sizes(
    config: ParallelConfig, num_devices: int, seen: str = "that JAX sees"
) -> dict[str, int]:
    """Return the size of each mesh axis, in the order of `MESH_AXES`.

    Args:
      config: Section `parallel` of the config.
      num_devices: Number of devices of the mesh.
      seen: Words after "devices" in error messages.

    Raises:
      UserError: The product of the sizes is not the number of devices, or the sizes
        shard both channels and pixels.
    """
    configured: dict[str, int | None] = {a: getattr(config, a) for a in MESH_AXES}
    sizes: dict[str, int] = dict.fromkeys(MESH_AXES, 1)
    for axis, size in PRESETS[config.preset].items():
        # Use a divisor of the number of devices, so that presets fit any machine.
        sizes[axis] = size if size == -1 else math.gcd(size, num_devices)
    has_free_axis = -1 in configured.values()
    for axis, size in configured.items():
        if size is not None:
            sizes[axis] = size
        elif sizes[axis] == -1 and has_free_axis:
            sizes[axis] = 1
    fixed = math.prod(size for size in sizes.values() if size != -1)
    shown = " x ".join(f"parallel.{a} = {s}" for a, s in sizes.items() if s != 1)
    if num_devices % fixed or (-1 not in sizes.values() and fixed != num_devices):
        raise UserError(
            f"{shown or 'a mesh of one device'} (preset {config.preset}) does not fit "
            f"the {counted(num_devices, 'device')} {seen}: set sizes whose product is "
            f"{num_devices}; one size may be -1, for the remaining devices"
        )
    free_size = num_devices // fixed
    sizes = {axis: free_size if size == -1 else size for axis, size in sizes.items()}
    # If both the output channels and the height or width of a convolution are sharded,
    # XLA partitions it wrongly: outputs are several times too large, without an error
    # (jaxlib 0.10.2, docs/decisions.md).
    for axis in SPATIAL_AXES:
        if sizes["model"] > 1 and sizes[axis] > 1:
            raise UserError(
                f"parallel.model = {sizes['model']} with parallel.{axis} = "
                f"{sizes[axis]}: XLA computes wrong convolutions if both channels and "
                "pixels are sharded; set one of the two axes to 1"
            )
    return sizes


def has_accelerators(mesh: Mesh) -> bool:
    """Whether the devices of a mesh are accelerators rather than CPUs."""
    return mesh.devices.flat[0].platform != "cpu"
