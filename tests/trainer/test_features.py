"""What frozen layers put out, computed once: the run is that which computes it anew."""

from typing import Any

import numpy as np
import pytest

from jaxtrain.config import (
    AugmentConfig,
    Config,
    CustomConfig,
    DataConfig,
)
from jaxtrain.data import datasets
from jaxtrain.trainer.features import FeaturePlan, plan
from jaxtrain.trainer.setup import build_setup
from tests.helpers.command import float64
from tests.helpers.layered import Steps, layered, take_steps
from tests.helpers.numerics import TOLERANCE
from tests.helpers.own_methods import BY_HAND

FROZEN: dict[str, Any] = {"freeze": ("backbone",), "ema_decay": 0.9}
DATA: dict[str, Any] = {
    "source": "synthetic:4x4x1/3/26",
    "batch_size": 8,
    "validation_fraction": 0.0,
}


def planned(config: Config) -> FeaturePlan:
    with float64(enable=True):
        return plan(build_setup(config))


def compare(config: Config) -> tuple[Steps, Steps]:
    return take_steps(config, keep_features=True), take_steps(config)


CASES: dict[str, Config] = {
    "streamed, balanced, repeated": layered(
        FROZEN, data=DataConfig(**DATA, cache="stream", sampling="balanced", repeats=2)
    ),
    "stem alone, several a call": layered(
        {"freeze": ("stem*",), "steps_per_call": 2}, data=DataConfig(**DATA)
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_other_runs_are(case: str):
    config = CASES[case]
    assert planned(config).obstacle is None
    kept, computed = compare(config)
    for name in ("loss", "grad_norm"):
        np.testing.assert_allclose(
            kept.metrics[name], computed.metrics[name], rtol=TOLERANCE
        )


def test_the_table_says_why_not(monkeypatch: pytest.MonkeyPatch):
    def told(train: dict[str, Any], **sections: Any) -> str:
        return planned(layered(train, **sections)).describe()

    assert "of the first 2 pieces, computed once, 0.0 MB" in told(FROZEN)
    later = {**FROZEN, "freeze_epochs": 1}
    assert "the layers are trained later" in told(later)
    augmented = DataConfig(**DATA, augment=AugmentConfig(crop_padding=1))
    assert "images are augmented" in told(FROZEN, data=augmented)
    assert "the first piece of the model is trained" in told({"freeze": ("block*",)})
    method = CustomConfig(name=BY_HAND)
    assert "method may use the images" in told(FROZEN, method=method)
    monkeypatch.setattr(datasets, "CACHE_FRACTION", 1e-9)
    assert "they take 0 MB, more than" in told(FROZEN)
