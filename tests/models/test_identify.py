"""Which model a file has the weights of, and what an export to timm is called."""

import json
import re
from typing import Any

import pytest

from jaxtrain.config import ModelConfig
from jaxtrain.errors import UserError
from jaxtrain.models.blueprint import Blueprint
from jaxtrain.models.weights import alike, sources
from jaxtrain.models.weights.identify import Identified, identify, shapes_there
from jaxtrain.models.weights.sources import SOURCES, WeightsSource

TF = ModelConfig(name="efficientnet_b0", padding="same")


def source_of(ours: str, architecture: str) -> WeightsSource:
    return next(row for row in SOURCES[ours] if row.architecture == architecture)


def found(ours: str, architecture: str, **told: Any) -> Identified:
    shapes = shapes_there(source_of(ours, architecture), ours, 3, 1000)
    return identify(shapes, "file", library="timm", **told)


@pytest.mark.slow
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


def test_arrays_alike_are_told_apart_by_the_name_of_the_file():
    """ResNet-18 with blurred pools has ResNet-18's arrays, and other outputs."""
    for hint in ("resnet18-f37072fd.pth", "resnet18.a1_in1k.safetensors"):
        one = found("resnet18", "resnet18", hint=hint)
        assert one.model.name == "resnet18" and not one.alternatives
    message = (
        r"file has the arrays of resnet18 \(model.name = 'resnet18'\), but its name "
        r"says resnetblur18, .*computes something else.* rename the file"
    )
    with pytest.raises(UserError, match=message):
        found("resnet18", "resnet18", hint="resnetblur18_84f4748f.pth")
    with pytest.raises(UserError, match=r"says resnet101, whose arrays have other"):
        found("resnet18", "resnet18", hint="resnet101-mine.pth")
    neutral = found("resnet18", "resnet18", hint="weights.pth")
    assert neutral.alternatives == ("resnetblur18",)


def test_an_architecture_with_arrays_alike_is_refused():
    with pytest.raises(UserError, match="as resnet50, but computes something else"):
        identify({}, "file", library="timm", architecture="resnetblur50.bt_in1k")


def test_the_list_of_arrays_alike_names_models_that_we_have():
    """It was written for the models that we have; a renamed one would lose its row."""
    known = {f"{s.library}:{s.architecture}" for rows in SOURCES.values() for s in rows}
    listed = json.loads(alike.FILE.read_text())["models"]
    assert listed and listed.keys() <= known
    for lists in listed.values():
        assert not set(lists["same"]) & set(lists["other"])
