"""Models of maps are trained on meshes, in stages and in parts as on one device."""

from typing import Any

import pytest

from tests.helpers.axes import COVER, assert_same

# Each axis, on half of the devices: for two stages.
HALVES: list[dict[str, int]] = [
    {"data": 2, "model": 2},
    {"fsdp": 2, "spatial": 2},
    {"data": 2, "spatial_width": 2},
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "groups",
    [
        pytest.param([{"meshes": COVER}], id="axes"),
        pytest.param([{"meshes": COVER[:2], "remat": "full"}], id="remat"),
        pytest.param([{"meshes": [{"fsdp": 8}], "preset": "zero1"}], id="zero1"),
        pytest.param(
            [{"meshes": HALVES, "micro": 2, "stages": 2}], id="stages and micro-batches"
        ),
    ],
)
@pytest.mark.parametrize("name", ["short unet", "short deeplab"])
def test_several_devices_train_as_one(name: str, groups: list[dict[str, Any]]):
    assert_same(name, groups)
