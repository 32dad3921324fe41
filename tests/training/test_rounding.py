"""Sums of parameters and updates in narrow dtypes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrain.training.precision import add_updates, round_at_random
from tests.helpers.rows import each_row

NARROW = [jnp.bfloat16, jnp.float16]


@each_row("dtype", NARROW)
@each_row("value", [1.0003, -1.0003, 3e-3, 1234.567, -7e-5, 0.0])
def test_mean_of_roundings_is_the_value(dtype, value: float):
    n = 100_000
    x = jnp.full(n, value, jnp.float32)
    rounded = round_at_random(x, dtype, jax.random.key(0))
    assert rounded.dtype == dtype
    both = np.unique(np.float64(rounded))
    gap = both[-1] - both[0]
    assert both[0] <= np.float64(x[0]) <= both[-1]
    # Neighbours: at most a unit in the last place apart.
    assert len(both) <= 2 and gap <= float(jnp.finfo(dtype).eps) * max(abs(value), 1e-4)
    # Six standard deviations of the mean of n draws, each of at most half a gap.
    error = abs(np.float64(rounded).mean() - np.float64(x[0]))
    assert error <= 6 * 0.5 * gap / np.sqrt(n)


@pytest.mark.parametrize("dtype", NARROW)
def test_what_fits_or_cannot_stays(dtype):
    x = jnp.float32([0, 1, -0.5, jnp.inf, -jnp.inf, jnp.nan, 3e38, -3e38])
    if dtype == jnp.bfloat16:
        x = x[:-2]
    rounded = round_at_random(x, dtype, jax.random.key(0))
    nearest = x.astype(dtype)
    np.testing.assert_array_equal(np.float32(rounded), np.float32(nearest))


@pytest.mark.parametrize("dtype", NARROW)
def test_updates_too_small_for_the_dtype_add_up(dtype):
    """Each is a fiftieth of the last bit of 1; to the nearest, nothing would move."""
    update = float(jnp.finfo(dtype).eps) / 50
    params = {"a": jnp.ones(1000, dtype), "b": jnp.ones(1000, dtype)}
    updates = jax.tree.map(lambda x: jnp.full(x.shape, update, jnp.float32), params)
    add = jax.jit(add_updates)
    for step in range(100):
        params = add(params, updates, jax.random.key(step))
    for x in params.values():
        assert x.dtype == dtype
        assert np.float64(x).mean() == pytest.approx(1 + 100 * update, abs=10 * update)
    assert not (params["a"] == params["b"]).all()  # Draws of their own.


def test_wide_parameters_are_added_to_as_they_are():
    params = {"a": jnp.float32([1.0, 2.0])}
    updates = {"a": jnp.float32([0.1, 1e-9])}
    added = add_updates(params, updates, jax.random.key(0))
    np.testing.assert_array_equal(added["a"], params["a"] + updates["a"])
