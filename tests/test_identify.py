"""Which model a file has the weights of, and what an export to timm is called."""

import re
from typing import Any

import pytest

from jaxtrain.config import ModelConfig
from jaxtrain.errors import UserError
from jaxtrain.models.blueprint import Blueprint
from jaxtrain.models.weights import sources
from jaxtrain.models.weights.identify import Identified, identify, shapes_there
from jaxtrain.models.weights.sources import SOURCES, Source

TF = ModelConfig(name="efficientnet_b0", padding="same")


def source_of(ours: str, architecture: str) -> Source:
    return next(row for row in SOURCES[ours] if row.architecture == architecture)


def found(ours: str, architecture: str, **told: Any) -> Identified:
    shapes = shapes_there(source_of(ours, architecture), ours, 3, 1000)
    return identify(shapes, "file", library="timm", **told)


def test_published_densenets_have_older_names():
    """Such as features.denseblock1.denselayer1.norm.1.weight."""
    source = source_of("densenet121", "densenet121")
    shapes = shapes_there(source, "densenet121", 3, 1000)
    form = r"(denselayer\d+\.(?:norm|conv))(\d\.)"
    older = {re.sub(form, r"\1.\2", name): x for name, x in shapes.items()}
    assert "features.denseblock4.denselayer16.conv.2.weight" in older
    found = identify(older, "file", library="torchvision")
    assert found.model.name == "densenet121"
    assert source.names.renamed(older).keys() == shapes.keys()
    # What has both is refused, as one of them would not be used.
    name = "features.denseblock1.denselayer1.norm.1.weight"
    with pytest.raises(UserError, match=re.escape(f"1 unknown to the model ({name})")):
        identify({**shapes, name: older[name]}, "file", library="torchvision")


def test_models_with_arrays_alike_are_told_apart():
    """Those from TensorFlow pad otherwise: outputs would be wrong without a word."""
    both = "efficientnet_b0 and of tf_efficientnet_b0"
    with pytest.raises(UserError, match=both):
        found("efficientnet_b0", "efficientnet_b0")
    for hint in ("tf_efficientnet_b0_aa-827b6e33.pth", "tf_efficientnet_b0.in1k.bin"):
        one = found("efficientnet_b0", "efficientnet_b0", hint=hint)
        assert one.model.padding == "same"
    one = found("efficientnet_b0", "efficientnet_b0", hint="efficientnet_b0_ra-1.pth")
    assert one.model.padding is None
    one = found("efficientnet_b0", "efficientnet_b0", wanted=TF)
    assert one.source.architecture == "tf_efficientnet_b0"


def test_few_models_are_built_to_tell_a_file(monkeypatch: pytest.MonkeyPatch):
    shapes = shapes_there(source_of("vgg16_bn", "vgg16_bn"), "vgg16_bn", 3, 1000)
    built, abstract = [], Blueprint.abstract

    def count(self: Blueprint) -> Any:
        built.append(self.config.name)
        return abstract(self)

    monkeypatch.setattr(Blueprint, "abstract", count)
    assert identify(shapes, "file", library="timm").model.name == "vgg16_bn"
    assert all(name.startswith("vgg") for name in built) and len(built) <= 8


def test_timm_has_a_vgg_of_small_images_alone():
    """Of 256 pixels its 7x7 convolution has four places, of which it takes the mean."""
    config = ModelConfig(name="vgg11")
    assert sources.find("timm", config, (255, 224, 3)) is not None
    assert sources.find("timm", config, (224, 256, 3)) is None
    assert sources.find("torchvision", config, (512, 512, 3)) is not None
