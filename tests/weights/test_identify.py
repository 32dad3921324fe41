"""Models of files by their names, and what an export to timm is called."""

import re
from pathlib import Path

import pytest

from jaxtrain.config import ConvNetConfig, ModelConfig, ResNetConfig, VGGConfig
from jaxtrain.errors import UserError
from jaxtrain.weights import sources
from jaxtrain.weights.identify import (
    Identified,
    find_by_file,
    find_named,
    identify,
    shapes_there,
)
from jaxtrain.weights.names import Shapes
from jaxtrain.weights.sources import SOURCES, WeightsSource
from jaxtrain.weights.spec import parse_reference
from tests.helpers import tiny
from tests.helpers.parts import model_config
from tests.helpers.rows import each_row


def source_of(ours: str, architecture: str) -> WeightsSource:
    return next(row for row in SOURCES[ours] if row.architecture == architecture)


@pytest.fixture
def tiny_shapes(monkeypatch: pytest.MonkeyPatch) -> Shapes:
    """Shapes of `tiny`, which timm then has."""
    one = tiny.source("timm")
    monkeypatch.setitem(SOURCES, "convnet", (one,))
    return shapes_there(one, "convnet", 3, 1000)


def found(shapes: Shapes, file: str, *models: ModelConfig) -> Identified:
    return identify(shapes, file, find_by_file(Path(file), models), "timm")


FILES = {
    "resnet50-0676ba61.pth": "resnet50",
    "resnet50.a1_in1k.safetensors": "resnet50",
    "wide_resnet50_2-95faca4d.pth": "wide_resnet50_2",
    "efficientnet_b0_rwightman-7f5810bc.pth": "efficientnet_b0",
    "tf_efficientnet_b0_aa-827b6e33.pth": "tf_efficientnet_b0",
    "tf_efficientnet_b0.in1k.bin": "tf_efficientnet_b0",
    "regnety_080_tv-1.bin": "regnety_080_tv",
    "vgg16_bn.safetensors": "vgg16_bn",
    "deeplabv3_resnet50_coco-cd0a2569.pth": "deeplabv3_resnet50",
}


@pytest.mark.plugins
@each_row("name", FILES)
def test_the_name_of_a_file_begins_with_the_architecture(name: str):
    rows = find_by_file(Path("in a folder") / name, ())
    assert {source.architecture for _, source in rows} == {FILES[name]}


@each_row(
    "name", ["resnetblur50-84f4748f.pth", "resnet50x-1.pth", "weights.pth", "my.bin"]
)
def test_a_file_without_such_a_name_is_refused(name: str):
    message = (
        f"{name}: the file name does not start with .* timm:ARCHITECTURE={name} or "
    )
    with pytest.raises(UserError, match=message) as error:
        find_by_file(Path(name), (ConvNetConfig(name="convnet"),))
    assert ("perhaps you meant resnet50" in str(error.value)) == ("resnet" in name)


@pytest.mark.plugins
def test_the_recipe_names_the_model_where_the_file_does_not(tiny_shapes: Shapes):
    mine = ConvNetConfig(name="convnet")
    one = found(tiny_shapes, "weights.pth", model_config("unet"), mine)
    assert (one.model.name, one.num_outputs, one.channels) == ("convnet", 1000, 3)
    assert one.source.architecture == "tiny"
    # What the name of the file says counts more.
    one = found(tiny_shapes, "tiny-1.pth", ResNetConfig(name="resnet18"))
    assert one.source.architecture == "tiny"


@pytest.mark.slow
def test_models_with_the_same_arrays_are_not_guessed():
    """Those from TensorFlow pad otherwise: outputs would be wrong without a word."""
    name, theirs = "mobilenet_v3_small", "mobilenetv3_small_100"
    shapes = shapes_there(source_of(name, theirs), name, 3, 1000)
    both = f"fits timm:{theirs} and timm:tf_{theirs}, .* timm:{theirs}=w.pth"
    with pytest.raises(UserError, match=both):
        found(shapes, "w.pth", model_config(name))
    model = model_config(name, padding="same")
    assert found(shapes, "w.pth", model).source.architecture == f"tf_{theirs}"
    one, other = (found(shapes, f"{x}{theirs}.pth").model for x in ("", "tf_"))
    assert [x.arguments()["padding"] for x in (one, other)] == [None, "same"]


def test_arrays_of_another_architecture_than_the_named_one_are_refused(
    tiny_shapes: Shapes,
):
    message = (
        r"lenet/resnet18-x.pth does not fit resnet18 of timm \(model.name = "
        r"'resnet18'\): \d+ missing \(.*\d unknown .*\d of another shape \("
    )
    with pytest.raises(UserError, match=message):
        found(tiny_shapes, "lenet/resnet18-x.pth")
    with pytest.raises(UserError, match=r"does not fit tiny .* 12 missing"):
        found({}, "tiny.pth")


def test_a_named_architecture_may_have_a_tag_and_one_that_we_lack_is_refused():
    for name in ("resnet50", "resnet50.a1_in1k"):
        rows = find_named(name, "config.json")
        assert [source.library for _, source in rows] == ["timm", "torchvision"]
    assert len(find_named("resnet50", "file", "timm")) == 1
    near = "perhaps you meant resnet50 or resnet50d or seresnet50; "
    with pytest.raises(UserError, match=f"^x: 'resnetblur50.bt' is not .* {near}"):
        find_named("resnetblur50.bt", "x")
    with pytest.raises(UserError, match="'mobilenetv2_100' is not a supported"):
        find_named("mobilenetv2_100", "x", "torchvision")


def test_a_reference_names_library_architecture_and_file():
    found = parse_reference("torchvision:vgg16=runs/a=b/weights.pth")
    assert found == ("torchvision", "vgg16", Path("runs/a=b/weights.pth"))
    for text in ("weights.pth", "hf:timm/resnet50", "C:w.pth", "timm", "a=b"):
        assert parse_reference(text) is None
    for text in ("timm:resnet50", "timm:=a.pth", "timm:resnet50="):
        with pytest.raises(UserError, match=f"^{text}: expected timm:ARCHITECTURE="):
            parse_reference(text)


@pytest.mark.exhaustive
def test_published_densenets_have_older_names():
    """Such as features.denseblock1.denselayer1.norm.1.weight."""
    source = source_of("densenet121", "densenet121")
    shapes = shapes_there(source, "densenet121", 3, 1000)
    form = r"(denselayer\d+\.(?:norm|conv))(\d\.)"
    older = {re.sub(form, r"\1.\2", name): x for name, x in shapes.items()}
    assert "features.denseblock4.denselayer16.conv.2.weight" in older
    rows = find_named("densenet121", "file")
    found = identify(older, "file", rows, "torchvision")
    assert found.model.name == "densenet121"
    assert source.names.renamed(older).keys() == shapes.keys()
    # What has both is refused, as one of them would not be used.
    name = "features.denseblock1.denselayer1.norm.1.weight"
    with pytest.raises(UserError, match=re.escape(f"1 unknown to the model ({name})")):
        identify({**shapes, name: older[name]}, "file", rows, "torchvision")


def test_timm_has_a_vgg_of_small_images_alone():
    """Of 256 pixels its 7x7 convolution has four places, of which it takes the mean."""
    config = VGGConfig(name="vgg11")
    assert sources.find("timm", config, (255, 224, 3)) is not None
    assert sources.find("timm", config, (224, 256, 3)) is None
    assert sources.find("torchvision", config, (512, 512, 3)) is not None
