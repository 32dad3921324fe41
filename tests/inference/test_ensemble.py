"""An ensemble predicts the mean of its models."""

import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy import special

from jaxtrain import load_model
from jaxtrain.config import ConvNetConfig
from jaxtrain.errors import UserError
from jaxtrain.inference import folder
from jaxtrain.inference.ensemble import Ensemble, join
from jaxtrain.inference.model import TrainedModel
from tests.helpers.untrained import untrained

IMAGES = np.random.default_rng(0).integers(0, 256, (3, 34, 32, 3), np.uint8)


def models(num: int) -> list[TrainedModel]:
    """Return tiny models of other weights each, some steps after their start."""
    first = untrained(ConvNetConfig(name="convnet", width=0.125))
    names = tuple("abcdefghij")
    about = dataclasses.replace(first.description, class_names=names)
    return [
        TrainedModel(
            about,
            jax.tree.map(lambda x, i=i: x * (1 + i / 4), first.params),
            first.model_state,
            {"step": i, "run": None},
        )
        for i in range(num)
    ]


def test_an_ensemble_predicts_the_mean_of_its_models(tmp_path: Path):
    alone = models(2)
    both = join(alone)
    wanted = np.mean([model.predict(IMAGES) for model in alone], 0)
    # Of float32, in another order.
    np.testing.assert_allclose(both.predict(IMAGES), wanted, rtol=1e-5, atol=1e-6)
    found = special.softmax(both.logits(IMAGES), -1)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    folder.write(both, tmp_path / "both")
    again = load_model(tmp_path / "both")
    assert isinstance(again, Ensemble) and again.origin["step"] == 1
    np.testing.assert_array_equal(again.predict(IMAGES), both.predict(IMAGES))


def test_features_of_an_ensemble_are_those_of_its_models():
    alone = models(2)
    wanted = np.concatenate([model.features(IMAGES) for model in alone], -1)
    found = join(alone).features(IMAGES)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_more_than_ten_models_keep_their_order():
    alone = models(12)
    made = join(alone)
    for i, model in enumerate(alone):
        assert made.params[str(i)] is model.params


def test_one_model_is_asked_for():
    model = join(models(3))
    with pytest.raises(UserError, match=r"--teacher is an ensemble of 3 models"):
        model.description.check_is_one("--teacher")
    models(1)[0].description.check_is_one("--teacher")
