"""Targets of changed images: what a task declares, and what it is called with."""

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrain import own
from jaxtrain.config import Config, CustomConfig, DataConfig
from jaxtrain.data.augment.geometry import Flip, Geometry
from jaxtrain.data.augment.mosaic import Tile
from jaxtrain.data.target_changes import Mixing, Mosaic, Pasting
from jaxtrain.errors import UserError
from jaxtrain.tasks.base import Task
from jaxtrain.tasks.build import build_task
from jaxtrain.tasks.target_transforms import handles, moves_targets, transform_of

HERE = "tests.tasks.test_target_changes"
SILENT, EMPTY = f"{HERE}:Silent", f"{HERE}:Empty"
own.allow([SILENT, EMPTY])
MASK = jnp.asarray(np.arange(12, dtype=np.int32).reshape(3, 4))
FLIP = Flip(jnp.array(True), (3, 4), dim=1)


class Masks(Task):
    """Targets have pixels; it asks the change for them, whatever it is."""

    num_outputs = 1
    target_changes: ClassVar[tuple[type, ...]] = (Geometry, Pasting, Mosaic)

    def __init__(self, image_shape: Any = None, facts: Any = None):
        del image_shape, facts

    def transform_target(self, target: Any, change: Any) -> Any:
        return change.pixels(target, border=99)


class Pairs(Masks):
    """Targets of pairs alone are changed."""

    target_changes = (Mixing,)

    def transform_target(self, target: Any, change: Any) -> Any:
        return change.weight[0] * target[0] + (1 - change.weight[0]) * target[1]


class Silent(Masks):
    """It transforms targets, and names no changes."""

    target_changes = ()


class Empty(Task):
    """It names a change, and does not transform targets."""

    num_outputs = 1
    target_changes = (Geometry,)

    def __init__(self, image_shape: Any, facts: Any):
        del image_shape, facts


def test_one_method_moves_pastes_and_joins_arrays_with_pixels():
    follow = transform_of(Masks())
    np.testing.assert_array_equal(follow(MASK, FLIP), MASK[:, ::-1])
    own_pixels = jnp.zeros((3, 4)).at[:, 1:].set(1)
    pasted = follow((MASK, MASK + 50), Pasting(jnp.array([0.75]), own_pixels))
    np.testing.assert_array_equal(pasted[:, 1:], MASK[:, 1:])
    np.testing.assert_array_equal(pasted[:, 0], MASK[:, 0] + 50)
    # Two images one below another, each moved out of the mosaic by two rows.
    corners = ((0.0, -2.0), (0.0, 1.0))
    tiles = [Tile(jnp.array(x), jnp.float32(1), (3, 4)) for x in corners]
    joined = follow((MASK, MASK + 50), Mosaic(tiles))
    expected = [MASK[2], MASK[0] + 50, MASK[1] + 50]
    np.testing.assert_array_equal(joined, expected)
    empty = follow((MASK,), Mosaic(tiles[1:]))
    assert (empty[0] == 99).all()


def test_changes_that_a_task_does_not_declare_leave_targets():
    task = Pairs()
    follow = transform_of(task)
    assert follow(MASK, FLIP) is MASK
    assert not moves_targets(task) and moves_targets(Masks())
    mixed = follow((MASK, MASK + 4), Mixing(jnp.array([0.5])))
    np.testing.assert_array_equal(mixed, MASK + 2)


def test_mixing_is_of_mixup_and_cutmix_pasting_of_cutmix_alone():
    mixes, pastes = Pairs(), Masks()
    assert handles(mixes, Mixing) and handles(mixes, Pasting)
    assert handles(pastes, Pasting) and not handles(pastes, Mixing)


@pytest.mark.parametrize("name", [SILENT, EMPTY])
def test_a_task_names_the_changes_that_it_applies(name: str):
    data = DataConfig(source="digits", batch_size=8)
    config = Config(task=CustomConfig(name=name), data=data)
    with pytest.raises(
        UserError, match="list the augmentations that transform_target supports"
    ):
        build_task(config, (8, 8, 1), {})
