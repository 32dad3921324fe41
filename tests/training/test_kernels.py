"""A step is taken whole or not at all, whichever part of it is not finite."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxtrain.config import SGDConfig, TrainConfig
from jaxtrain.training.create import first_state
from jaxtrain.training.kernels import choose, global_norm, squares
from jaxtrain.training.optimizers import make_optimizer
from jaxtrain.training.transforms.guard import Guard
from jaxtrain.training.update import apply_gradients
from tests.helpers.numerics import same
from tests.helpers.phases import make_phase
from tests.helpers.rows import each_row
from tests.helpers.trial import LAYOUT


def tree(*values: float, dtype: str = "float32") -> Any:
    """Return layers of a kernel and a bias, each full of one of the values."""
    return {
        f"layer{i}": {
            "kernel": jnp.full((2, 3), value, dtype),
            "bias": jnp.full(3, value, dtype),
        }
        for i, value in enumerate(values)
    }


def test_a_parameter_and_its_moments_read_one_copy_of_the_choice():
    """Else XLA:GPU copies what one kernel overwrites and another reads."""
    params = tree(*range(20))
    state = {"params": params, "opt_state": (params, params)}
    jaxpr = jax.make_jaxpr(choose)(jnp.array(True), state, state).jaxpr
    (barrier,) = (e for e in jaxpr.eqns if e.primitive.name == "optimization_barrier")
    # 20 arrays a shape: three kernels of at most 8 parameters each.
    assert len(barrier.outvars) == 3


@pytest.mark.parametrize("kernel_order", [None, (3, 0, 1, 2)])
def test_norm_is_that_of_all_arrays_in_one_vector(kernel_order: Any):
    rng = np.random.default_rng(0)
    shapes = [(3, 4), (4, 3), (5,), (3, 4), (), (5,), (2, 3, 4), (1, 1, 3, 4)]
    arrays = [rng.normal(size=shape) for shape in shapes]
    dtypes = ["float32", "bfloat16"] * 4
    values = [jnp.asarray(x, t) for x, t in zip(arrays, dtypes, strict=False)]
    flat = np.concatenate([np.asarray(x, np.float64).ravel() for x in values])
    layout = dataclasses.replace(LAYOUT, kernel_order=kernel_order)
    total = squares(dict(enumerate(values)), layout)
    # 83 terms in float32.
    np.testing.assert_allclose(total, np.sum(flat**2), rtol=1e-6)
    assert total.dtype == jnp.float32
    assert squares({}, LAYOUT) == 0


@each_row("bad", [np.nan, np.inf, -np.inf, 1e20])
@each_row("place", [0, 1, 2])
def test_norm_is_not_finite_where_one_value_or_its_square_is_not(
    bad: float, place: int
):
    values = [1.0, 1.0, 1.0]
    values[place] = bad
    assert not np.isfinite(squares(tree(*values), LAYOUT))


@each_row(
    ("dtype", "loss", "value", "update", "is_taken"),
    [
        ("float32", 1.0, 1.0, 1.0, True),
        ("float32", np.nan, 1.0, 1.0, False),
        ("float32", 1.0, 1.0, np.nan, False),
        # Gradients with a finite norm that lead to parameters without one.
        ("float32", 1.0, 5e18, 5e18, False),
        ("bfloat16", 1.0, 5e18, 5e18, False),
        ("float16", 1.0, 6e4, 1.0, True),
        # Finite in float32, in which the sum is, and rounded to infinity.
        ("float16", 1.0, 6.5e4, 2e3, False),
    ],
)
def test_step_with_a_bad_part_leaves_all_as_it_was(
    dtype: str, loss: float, value: float, update: float, is_taken: bool
):
    """Of 20 layers, the last alone has the value and the update."""
    options = SGDConfig(learning_rate=1.0, momentum=0.9)
    tx: Any = make_optimizer(options, optax.constant_schedule(1.0))  # pyright: ignore[reportArgumentType]
    rules = make_phase(
        options, TrainConfig(steps=1), tx, None, {}, transforms=(Guard(),)
    )
    params = tree(*[1.0] * 19, value, dtype=dtype)
    state = first_state(
        (params, {"norm": {"mean": jnp.zeros(3)}}), tx, rules.transforms
    )
    grads = tree(*[-1.0] * 19, -update)
    norm = functools.partial(global_norm, layout=LAYOUT)
    moved = {"norm": {"mean": jnp.ones(3)}}
    metrics = {"loss": jnp.float32(loss)}
    after, metrics = apply_gradients(
        rules, state, jax.random.key(0), grads, norm(grads), moved, metrics, norm
    )
    assert metrics["skipped"] == int(not is_taken)
    for name in ("params", "model_state", "opt_state"):
        assert same(getattr(after, name), getattr(state, name)) == (not is_taken), name
