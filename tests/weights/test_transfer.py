"""`weights.load` and `weights.transfer` alone, without a run."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx

from jaxtrain import load_model, weights
from jaxtrain.errors import UserError
from jaxtrain.weights.sources import SOURCES
from jaxtrain.weights.stored import Weights
from tests.helpers import tiny

SPEC = f"timm:tiny={tiny.FILE}"


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Weights:
    monkeypatch.setitem(SOURCES, "convnet", (tiny.source("timm"),))
    return weights.load(SPEC)


def test_a_model_alike_takes_all_of_them(found: Weights):
    values, report = weights.transfer(found, found.about.blueprint())
    whole = load_model(SPEC)
    jax.tree.map(
        np.testing.assert_array_equal, values, (whole.params, whole.model_state)
    )
    assert str(report) == f"weights: {tiny.FILE}"


def test_other_channels_and_classes_are_told(found: Weights):
    blueprint = dataclasses.replace(
        found.about.blueprint(), image_shape=(8, 8, 1), num_outputs=3
    )
    (params, state), report = weights.transfer(found, blueprint)
    whole = load_model(SPEC)
    first = whole.params["conv1"]["kernel"].sum(2, keepdims=True)
    np.testing.assert_allclose(params["conv1"]["kernel"], first, rtol=1e-6)
    assert report.kept == {"head/linear/kernel", "head/linear/bias"}
    assert str(report).splitlines()[1:] == [
        "new: the last layer, which had 5 outputs: head/linear",
        "converted: conv1, from 3 channels to 1",
    ]
    again: Any = weights.transfer(found, blueprint)[0][0]
    other: Any = weights.transfer(found, blueprint, seed=1)[0][0]
    heads = [x["head"]["linear"]["kernel"] for x in (params, again, other)]
    assert (heads[0] == heads[1]).all() and (heads[0] != heads[2]).any()
    model = blueprint.build(nnx.Rngs(0))
    nnx.update(model, params, state)
    assert np.isfinite(model(tiny.images()[..., :1])).all()


def test_weights_of_another_width_are_refused(found: Weights):
    blueprint = found.about.blueprint()
    wide = dataclasses.replace(blueprint.config, width=0.25)
    with pytest.raises(UserError, match=r"tiny.safetensors does not fit .* of another"):
        weights.transfer(found, dataclasses.replace(blueprint, config=wide))
