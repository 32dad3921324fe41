"""A DeepLab's dilated kernels on images whose rows and columns devices share."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from tests.helpers.command import float64

# Dilations of a DeepLab (Chen et al. 2017).
RATES = (12, 24, 36)
# Rows and columns: more than the largest dilation, and less than it on each device.
SIZE = 48


def gradients(rows: int, columns: int) -> list[list[np.ndarray]]:
    """Return value and gradients on one device, and on a mesh of rows x columns."""
    from jaxtrain.plugins.segmentation.dense import resized

    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, SIZE, SIZE, 3))
    kernels = [rng.standard_normal((3, 3, 3, 2)) for _ in RATES]
    weight = rng.standard_normal((2, 2 * SIZE, 2 * SIZE, 2))

    def value(x: jax.Array, kernels: list[jax.Array]) -> jax.Array:
        parts = [
            jax.lax.conv_general_dilated(
                x,
                kernel,
                (1, 1),
                ((rate, rate), (rate, rate)),
                rhs_dilation=(rate, rate),
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
            )
            for kernel, rate in zip(kernels, RATES, strict=True)
        ]
        return (resized(jnp.stack(parts).sum(0), (2 * SIZE, 2 * SIZE)) * weight).sum()

    found = []
    with float64(enable=True):
        for shape in (1, 1), (rows, columns):
            devices = np.array(jax.devices()[: shape[0] * shape[1]]).reshape(shape)
            mesh = Mesh(devices, ("rows", "columns"))
            images = NamedSharding(mesh, P(None, "rows", "columns"))
            graded = jax.jit(
                jax.value_and_grad(value, argnums=(0, 1)),
                in_shardings=(images, NamedSharding(mesh, P())),
            )
            found.append([np.asarray(a) for a in jax.tree.leaves(graded(x, kernels))])
    return found
