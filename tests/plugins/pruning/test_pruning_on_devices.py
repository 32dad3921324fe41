"""Pruning on meshes: the same weights as on one device, however they are shared."""

import pytest

from jaxtrain.config import SamConfig
from tests.helpers.axes import assert_same_with

LAYERS = {"layers": ("conv*", "head")}


@pytest.mark.exhaustive
def test_a_method_moves_the_same_weights_of_a_model_that_begins_pruned():
    """Also where each device trains copies of its own, and masks are shared."""
    prune = {"sparsity": 0.5, "start_epochs": 0.0, "end_epochs": 0.0, **LAYERS}
    assert_same_with({"steps": 2}, SamConfig(), prune)
