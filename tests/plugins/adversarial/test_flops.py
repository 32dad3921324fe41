"""FLOPs counted in jaxprs, against what the formulas say."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from jaxtrain.plugins.adversarial.adversarial import Adversarial
from jaxtrain.plugins.adversarial.trades import Trades
from jaxtrain.training.flops import count_flops
from jaxtrain.training.methods.base import Method
from jaxtrain.training.methods.plain import Plain
from jaxtrain.training.methods.sam import Sam
from jaxtrain.training.step import make_train_step
from tests.helpers.rows import each_row
from tests.helpers.trial import IMAGES, LABELS, LAYOUT, ROOT, Trial, as_given


def count(function: Any, *shapes: tuple[int, ...]) -> int:
    arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return count_flops(jax.jit(function).trace(*arrays).jaxpr.jaxpr)


@each_row(("stride", "groups"), [(1, 1), (2, 1), (1, 2), (2, 8)])
def test_a_convolution_and_its_gradients_take_the_same(stride: int, groups: int):
    def loss(x: jax.Array, kernel: jax.Array) -> jax.Array:
        y = jax.lax.conv_general_dilated(
            x,
            kernel,
            (stride, stride),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups,
        )
        return jnp.sum(y * y)

    shapes = (4, 16, 16, 8), (3, 3, 8 // groups, 16)
    one = 2 * 4 * (16 // stride) ** 2 * 16 * 9 * 8 // groups
    assert count(loss, *shapes) == one
    assert count(jax.grad(loss, (0, 1)), *shapes) == 3 * one


def test_loops_branches_and_what_is_computed_again():
    def scanned(x: jax.Array) -> jax.Array:
        def body(carry: jax.Array, _: None) -> tuple[jax.Array, None]:
            return jax.checkpoint(lambda c: jnp.sin(c @ c))(carry), None

        return jnp.sum(jax.lax.scan(body, x, None, length=5)[0])

    def branches(x: jax.Array) -> jax.Array:
        return jax.lax.cond(x[0, 0] > 0, lambda x: x @ x @ x, lambda x: x @ x, x)

    one = 2 * 8**3
    assert count(scanned, (8, 8)) == 5 * one
    # Once more for the activations, and two products for their gradients.
    assert count(jax.grad(scanned), (8, 8)) == 5 * 4 * one
    assert count(branches, (8, 8)) == 2 * one


@pytest.mark.parametrize("num_devices", [1, 2])
def test_all_devices_count(num_devices: int):
    auto = (jax.sharding.AxisType.Auto,)
    mesh = jax.sharding.AbstractMesh((num_devices,), ("batch",), axis_types=auto)
    rows = PartitionSpec("batch")
    product = jax.shard_map(
        lambda x: x @ jnp.ones((4, 4)), mesh=mesh, in_specs=rows, out_specs=rows
    )
    assert count(product, (8, 4)) == 2 * 8 * 4 * 4


def step_flops(trial: Trial, method: Method, *, compiled: bool = False) -> float:
    """Count those of a training step: as it is traced, or as XLA counts what is left.

    A traced step has the gradients of the kernels beside those of the images, as a
    convolution computes both; where an attack looks at images alone XLA drops them.
    """
    step = make_train_step(
        trial.task, trial.graphdef, trial.phase, as_given, LAYOUT, method=method
    )
    index = np.zeros(LABELS[:1].shape, np.int32)
    batch = {"image": IMAGES[:1], "target": LABELS[:1], "index": index}
    traced = jax.jit(step).trace(trial.state, ROOT, {}, batch)
    if not compiled:
        return count_flops(traced.jaxpr.jaxpr)
    costs: Any = traced.lower().compile().cost_analysis()
    return costs["flops"]


# Method, steps as it is traced, and passes (a plain step has three) as it is compiled.
COSTS: list[tuple[Method, float, float]] = [
    (Sam(), 2, 6),
    (Adversarial(steps=1, epsilon=0.1), 2, 5),
    (Adversarial(steps=3, epsilon=0.1), 4, 9),
    # Once the clean outputs, the attack, and both kinds of images forward and back.
    (Trades(steps=4, epsilon=0.1), 4 + 2 + 1 / 3, 15),
]


@pytest.mark.slow
def test_methods_take_the_products_of_their_passes():
    trial = Trial(compute=False)
    one = step_flops(trial, Plain())
    for method, steps, _ in COSTS:
        assert (steps - 0.01) * one <= step_flops(trial, method) <= (steps + 0.05) * one


@pytest.mark.exhaustive
def test_of_an_attack_the_gradients_of_images_alone_are_computed():
    """A forward and a backward pass of three; the first layer adds one to them."""
    trial = Trial(compute=False)
    one = step_flops(trial, Plain(), compiled=True)
    for method, steps, passes in COSTS:
        found = step_flops(trial, method, compiled=True)
        # XLA counts what is no product, too, and the images' part is small layers'.
        assert 0.97 * passes / 3 * one <= found <= 1.15 * passes / 3 * one
        assert found <= (steps + 0.02) * one
