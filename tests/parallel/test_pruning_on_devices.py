"""Pruning on meshes: the same weights as on one device, however they are shared."""

from typing import Any

import pytest

from tests.helpers.axes import assert_same_with
from tests.helpers.tiers import thinned

# Pruned after the one step that is taken, of two; an epoch has four.
AFTER_ONE = {"start_epochs": 0.25}
LAYERS = {"layers": ("conv*", "head")}


@pytest.mark.parametrize(
    "prune",
    thinned(
        3,
        [
            {"sparsity": 0.5, "scope": "layer", "end_epochs": 0.25},
            {"sparsity": 0.5, "scope": "global", "end_epochs": 0.25},
            {"pattern": "1:2"},
        ],
    ),
    ids=str,
)
def test_meshes_prune_the_same_weights(prune: dict[str, Any]):
    assert_same_with({"steps": 2}, {**AFTER_ONE, **LAYERS, **prune})


@pytest.mark.slow
def test_a_method_moves_the_same_weights_of_a_model_that_begins_pruned():
    """Also where each device trains copies of its own, and masks are shared."""
    prune = {"sparsity": 0.5, "start_epochs": 0.0, "end_epochs": 0.0, **LAYERS}
    assert_same_with({"steps": 2, "method": "sam"}, prune)
