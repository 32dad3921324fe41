"""FLOPs counted in jaxprs, against what the formulas say."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec

from jaxtrain.training.flops import count_flops
from tests.helpers.rows import each_row


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


def test_products_count_as_xla_counts_them():
    def function(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.einsum("bij,bjk->bik", x, y)

    shapes = (3, 8, 16), (3, 16, 4)
    arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    costs: Any = jax.jit(function).lower(*arrays).cost_analysis()
    assert count(function, *shapes) == costs["flops"] == 2 * 3 * 8 * 16 * 4


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
    mesh = jax.sharding.AbstractMesh((num_devices,), ("batch",))
    rows = PartitionSpec("batch")
    product = jax.shard_map(
        lambda x: x @ jnp.ones((4, 4)), mesh=mesh, in_specs=rows, out_specs=rows
    )
    assert count(product, (8, 4)) == 2 * 8 * 4 * 4
