"""Models of maps are trained on meshes, in stages and in parts as on one device."""

from typing import Any

import numpy as np
import pytest

from tests.helpers import split_dilation
from tests.helpers.axes import COVER, NUM_DEVICES, assert_same
from tests.helpers.command import with_devices
from tests.helpers.rows import each_row
from tests.helpers.tiers import EXHAUSTIVE, SLOW

# Each axis, on half of the devices: for two stages.
HALVES: list[dict[str, int]] = [
    {"data": 2, "model": 2},
    {"fsdp": 2, "spatial": 2},
    {"data": 2, "spatial_width": 2},
]


AXES = [{"meshes": COVER}]
STAGES = [{"meshes": HALVES, "micro": 2, "stages": 2}]
OTHERS = [
    {"meshes": COVER[:2], "remat": "full"},
    {"meshes": [{"fsdp": 8}], "preset": "zero1"},
]


@pytest.mark.plugins
@pytest.mark.parametrize(
    ("name", "groups"),
    [
        pytest.param("unet", [{**STAGES[0], "meshes": HALVES[:2]}], marks=SLOW),
        pytest.param("unet", AXES, marks=SLOW),
        pytest.param("unet", OTHERS, marks=EXHAUSTIVE),
        pytest.param("deeplab", AXES, marks=EXHAUSTIVE),
        pytest.param("deeplab", STAGES, marks=EXHAUSTIVE),
    ],
    ids=("unet-stages", "unet-axes", "unet-others", "deeplab-axes", "deeplab-stages"),
)
def test_several_devices_train_as_one(name: str, groups: list[dict[str, Any]]):
    assert_same(f"short {name}", groups)


@pytest.mark.plugins
@pytest.mark.slow
@each_row(("rows", "columns"), [(2, 1), (4, 1), (1, 2), (2, 2)])
def test_dilations_larger_than_a_share_of_the_image(rows: int, columns: int):
    """Each device needs rows of others that are not its neighbours."""
    one, several = with_devices(NUM_DEVICES, split_dilation.gradients, rows, columns)
    for x, y in zip(several, one, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-11 * np.abs(y).max())
