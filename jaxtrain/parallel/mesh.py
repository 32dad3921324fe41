"""The device mesh: named axes over all devices of all processes."""

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from jaxtrain.config import ParallelConfig
from jaxtrain.errors import UserError

AXES = ("data",)


def make_mesh(config: ParallelConfig) -> Mesh:
    """Arrange all devices in a mesh with the axis sizes of `config`.

    Raises:
      UserError: the sizes do not multiply to the number of devices.
    """
    devices = jax.devices()
    data = len(devices) if config.data == -1 else config.data
    if data != len(devices):
        raise UserError(
            f"parallel.data = {data}, but JAX sees {len(devices)} "
            f"{devices[0].platform} device(s): set it to {len(devices)} or -1"
        )
    # Explicit axes, JAX's default, make convolution gradients raise.
    return Mesh(
        np.asarray(devices).reshape(data), AXES, axis_types=(AxisType.Auto,) * len(AXES)
    )
