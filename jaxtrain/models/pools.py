"""Functions that make images smaller, or take their rows and columns away."""

import jax


def max_pool(x: jax.Array) -> jax.Array:
    """Take the maximum of each 2x2 window; an odd last row or column is left out.

    Equals `nnx.max_pool(x, (2, 2), (2, 2))`, but that equal maxima share the gradient.
    The gradient of nnx.max_pool is a select-and-scatter: without it a whole training
    step was measured 1.7 to 2 times as fast on CPU.
    """
    batch, height, width, channels = x.shape
    height, width = height // 2, width // 2
    x = x[:, : 2 * height, : 2 * width]
    return x.reshape(batch, height, 2, width, 2, channels).max((2, 4))


def flatten(x: jax.Array) -> jax.Array:
    """Join all dims but the first."""
    return x.reshape(x.shape[0], -1)
