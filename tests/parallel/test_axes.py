"""Every combination of mesh axes that is accepted computes what one device does.

In float64, where another order of sums differs by about 1e-16: what is larger is
another function, whatever the CPU. One process with eight simulated devices takes a
step and evaluates on the first of them, and on each mesh.
"""

import jax
import numpy as np
import pytest

from tests.helpers import split_pool
from tests.helpers.axes import COVER, NUM_DEVICES, assert_same, draw_on
from tests.helpers.command import with_devices
from tests.helpers.tiers import thinned

Axes = dict[str, int]


# All of the axes, but for channels with rows or columns, which are refused.
TRIPLES: list[Axes] = [
    *COVER,
    {"data": 2, "fsdp": 2, "spatial": 2},
    {"data": 2, "fsdp": 2, "spatial_width": 2},
]
# Shares that are not halves take other paths in XLA: each axis is of 4 once.
FOURS: list[Axes] = [
    {"data": 4, "model": 2},
    {"data": 2, "fsdp": 4},
    {"fsdp": 2, "model": 4},
    {"fsdp": 2, "spatial": 4},
    {"spatial": 2, "spatial_width": 4},
]
# Every axis, on half of the devices: for two stages.
AXES: list[Axes] = [
    {"data": 2, "model": 2},
    {"fsdp": 2, "spatial": 2},
    {"data": 2, "spatial_width": 2},
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "meshes"),
    [
        ("convnet, global", TRIPLES),
        pytest.param("lenet", TRIPLES, marks=pytest.mark.exhaustive),
        pytest.param("basic resnet", COVER, marks=pytest.mark.exhaustive),
    ],
    ids=("global", "lenet", "resnet"),
)
def test_triples(name: str, meshes: list[Axes]):
    """Every pair is in one of them; batch norm in groups is in the test below."""
    assert_same(name, [{"meshes": meshes}])


@pytest.mark.slow
def test_other_sizes():
    assert_same("convnet, global", [{"meshes": FOURS}])


@pytest.mark.plugins
@pytest.mark.parametrize("name", thinned(2, ["convnet, groups", "convnet, global"]))
def test_axes_with_micro_batches_stages_and_presets(name: str):
    """What shares the work beside the axes: time, layers, and what fsdp splits."""
    assert_same(
        name,
        [
            {"meshes": COVER, "micro": 2},
            {"meshes": AXES, "micro": 2, "stages": 2},
            {"meshes": [m for m in COVER if "fsdp" in m], "preset": "zero1"},
        ],
    )


@pytest.mark.plugins
@pytest.mark.slow
def test_copies_of_weights():
    """What sums gradients in another dtype than that of the layers is right, too."""
    assert_same(
        "convnet, groups",
        [
            {"meshes": COVER[:1], "copies": True},
            {"meshes": AXES, "copies": True, "micro": 2, "stages": 2},
            {"meshes": [{"fsdp": 4}], "copies": True, "preset": "zero1"},
        ],
    )


@pytest.mark.slow
def test_what_is_computed_again_is_the_same_on_all_axes():
    assert_same("basic resnet", [{"meshes": COVER[:2], "remat": "full"}])


@pytest.mark.slow
def test_first_weights_are_the_same_on_all_axes():
    one, *others = with_devices(NUM_DEVICES, draw_on, "convnet, global", [{}, *COVER])
    for drawn in others:
        jax.tree.map(np.testing.assert_array_equal, drawn, one)


@pytest.mark.slow
@pytest.mark.parametrize("padding", [0, 1])
def test_rows_of_a_max_pool(padding: int):
    """The partitioner aborts at other ways to write its gradient."""
    one, four = with_devices(NUM_DEVICES, split_pool.gradients, padding)
    np.testing.assert_array_equal(one, four)
