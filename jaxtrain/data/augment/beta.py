"""Draws from a beta distribution, from a table of its quantiles."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import betaincinv

# Steps of the table; between them lies a straight line.
STEPS = 4096


class BetaDraw(NamedTuple):
    """Draws from Beta(a, b), float32 ().

    `jax.random.beta` draws again until a draw is accepted: a loop of unknown length, at
    each round of which a GPU waits for the host.
    """

    a: float
    b: float

    def __call__(self, key: jax.Array) -> jax.Array:
        draw = jax.random.uniform(key, (), jnp.float32)
        points = np.linspace(0, 1, STEPS + 1, dtype=np.float32)
        return jnp.interp(draw, points, _quantiles(self.a, self.b))


@functools.lru_cache
def _quantiles(a: float, b: float) -> np.ndarray:
    return betaincinv(a, b, np.linspace(0, 1, STEPS + 1)).astype(np.float32)
