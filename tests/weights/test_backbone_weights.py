"""A model of maps begins with the weights of a classifier, or with its own."""

import dataclasses
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxtrain import load_model
from jaxtrain.cli import main
from jaxtrain.config import (
    InceptionConfig,
    LeNetConfig,
    ModelConfig,
    ResNetConfig,
)
from jaxtrain.training.state import split_model
from jaxtrain.weights.description import Description
from jaxtrain.weights.names import OWN, ArrayNames
from jaxtrain.weights.sources import SOURCES
from jaxtrain.weights.stored import Transfer, Weights, shapes_of
from jaxtrain.weights.transfer_learning import compare
from tests.helpers import described
from tests.helpers.maps import FOUR_STAGES, PIXELS, SHAPES
from tests.helpers.parts import model_config
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import read_lines
from tests.helpers.words import quoted

SMALL: dict[str, Any] = {"backbone": FOUR_STAGES, "width": 0.1, "stem": "cifar"}


def describe(model: ModelConfig, shape: Any = (32, 32, 3), num: int = 7) -> Description:
    return described.describe(
        model, shape, num_outputs=num, std=(0.2,) * shape[2], crop_pct=0.875
    )


def weights_of(about: Description) -> dict[str, tuple[int, ...]]:
    return shapes_of(split_model(about.abstract)[1:])


def plan(model: ModelConfig, trained: Description, names: ArrayNames = OWN) -> Transfer:
    """Plan how a model for 33x35 pixels and 4 classes begins with some weights."""
    mine = describe(model, (33, 35, 3), 4)
    stored = (
        names.shapes(weights_of(trained))
        if names is not OWN
        else {OWN.name(path): shape for path, shape in weights_of(trained).items()}
    )
    weights = Weights("here", trained, stored, str, dict, names)
    return compare(weights, mine.blueprint())


# Classifier, its image, and the names of its arrays: of its own size, its number of
# channels, or its library.
BACKBONES: list[tuple[ModelConfig, Any, ArrayNames]] = [
    (LeNetConfig(), (28, 28, 1), OWN),
    (ResNetConfig(name="resnet18"), (224, 224, 3), SOURCES["resnet18"][1].names),
]


@pytest.mark.slow
@each_row(("classifier", "shape", "names"), BACKBONES)
def test_weights_of_a_classifier_are_those_of_the_backbone(
    classifier: ModelConfig, shape: Any, names: ArrayNames
):
    model = model_config("unet", backbone=classifier.name)
    start = plan(model, describe(classifier, shape), names)
    mine = describe(model, (33, 35, 3), 4)
    inside = {path.partition("/")[0] for path in weights_of(mine).keys() - start.kept}
    assert inside == {*mine.abstract.backbone_layers}
    assert "after the backbone: head/linear, up1/" in start.rows["new layers"]
    assert ("converted" in start.rows) == (shape[2] == 1) == bool(start.converted)
    assert not start.rows.keys() - {"new layers", "converted"}


@pytest.mark.slow
def test_auxiliary_heads_of_a_classifier_are_left_out():
    start = plan(
        model_config("unet", backbone="googlenet"),
        describe(InceptionConfig(name="googlenet"), (64, 64, 3)),
    )
    assert not any("aux" in path for path in start.kept)
    assert [*start.rows] == ["new layers"]


@pytest.mark.slow
def test_weights_of_the_whole_model_keep_all_but_the_last_layers():
    model = model_config("fcn_resnet50", **SMALL)
    trained = dataclasses.replace(describe(model), output_spec=(32, 32, 7))
    start = plan(model, trained)
    assert {path.rpartition("/")[0] for path in start.kept} == {
        "head/linear",
        "aux/head/linear",
    }
    assert start.rows["new"].startswith("the last layer, which had 7 outputs")


MAPS = (
    f'Config(task=CustomConfig(name="{PIXELS}"), '
    f'data=DataConfig(source="{SHAPES}", batch_size=16), '
    'model=UNetConfig(backbone="convnet"), '
    "optimizer=SGDConfig(learning_rate=1e-12), "
    "train=TrainConfig(steps=2), "
    "logging=LoggingConfig(every_steps=1, tensorboard=False, report=False))"
)


@pytest.mark.slow
def test_a_run_begins_with_a_classifier(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    first = recipe(
        data='DataConfig(source="synthetic:16x16x3/4/96", batch_size=32)',
        train="TrainConfig(steps=2)",
        logging="LoggingConfig(every_steps=1, tensorboard=False)",
    )
    write_recipe(tmp_path / "first.py", first)
    write_recipe(tmp_path / "maps.py", MAPS)
    words = f"--config {quoted(tmp_path)}/first.py --workdir {quoted(tmp_path)}/first"
    assert main(shlex.split(words)) == 0
    words = f"--config {quoted(tmp_path)}/maps.py --workdir {quoted(tmp_path)}/maps"
    given = [*shlex.split(words), "--model.pretrained", f"{tmp_path}/first"]
    assert main([*given, "--model.backbone", "lenet"]) == 2
    assert "set --model.backbone convnet" in capsys.readouterr().err
    assert main(given) == 0
    old, new = load_model(tmp_path / "first"), load_model(tmp_path / "maps")
    # The width of the classifier is that of the whole model.
    assert new.description.model.arguments()["width"] == 0.125
    for layer in ("conv1", "conv2"):
        np.testing.assert_allclose(
            old.params[layer]["kernel"], new.params[layer]["kernel"], rtol=1e-6
        )
    told = " ".join(line.get("event", "") for line in read_lines(tmp_path / "maps"))
    assert f"starts from the weights of {tmp_path}/first" in told
