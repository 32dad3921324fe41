"""The gradient of a max pool on one device, and with its rows on four."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxtrain.models.pools import max_pool_3x3


def gradients(padding: int) -> list[np.ndarray]:
    """Return it, of strides of 2, on one device and on four."""
    x = np.random.default_rng(0).integers(-3, 4, (2, 16, 9, 3)).astype(np.float32)

    def loss(x: jax.Array) -> jax.Array:
        y = max_pool_3x3(x, stride=2, padding=padding)
        return (y * jnp.arange(y.size).reshape(y.shape)).sum()

    mesh = Mesh(np.array(jax.devices()[:4]), ("spatial",))
    rows = NamedSharding(mesh, PartitionSpec(None, "spatial"))
    return [
        np.asarray(jax.jit(jax.grad(loss))(array))
        for array in (x, jax.device_put(x, rows))
    ]
