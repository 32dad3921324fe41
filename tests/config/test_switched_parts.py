"""A name on the command line that switches a part of the config."""

from collections.abc import Callable
from pathlib import Path

import pytest

from jaxtrain import cli
from jaxtrain.config import (
    Config,
    CosineSchedule,
    LeNetConfig,
    ModelConfig,
    OptimizerConfig,
    ResNetConfig,
    SGDConfig,
)
from jaxtrain.config.metadata import with_metadata

RECIPE = """
from jaxtrain.config import *

def get_config():
    optimizer = AdamWConfig(
        learning_rate=1e-3, weight_decay=0.05, b2=0.99, schedule=CosineSchedule()
    )
    return Config(optimizer=optimizer, model=ResNetConfig(name="resnet18", stem="cifar"))
"""
Parse = Callable[..., Config]


@pytest.fixture
def parse(tmp_path: Path) -> Parse:
    path = tmp_path / "recipe.py"
    path.write_text(RECIPE)

    def parse(*words: str) -> Config:
        return cli.parse("train", ["--config", str(path), *words]).overrides

    return parse


@pytest.mark.parametrize("words", [["--optimizer", "sgd"], ["--optimizer=sgd"]])
def test_options_of_the_other_part_have_their_defaults(
    words: list[str], parse: Parse, capsys: pytest.CaptureFixture[str]
):
    """What every part has stays as the recipe says."""
    found = parse(*words, "--optimizer.momentum", "0.9").optimizer
    assert found == SGDConfig(
        learning_rate=1e-3,
        weight_decay=0.05,
        schedule=CosineSchedule(),
        momentum=0.9,
    )
    told = "--optimizer sgd: ignores the recipe's adamw options: optimizer.b2 = 0.99"
    assert told in capsys.readouterr().err


def test_the_same_part_keeps_its_options(parse: Parse):
    assert parse("--optimizer", "adamw") == parse()


def test_a_model_is_switched_likewise(parse: Parse):
    assert parse("--model", "lenet").model == LeNetConfig()
    words = ["--model", "resnet50", "--model.stem", "cifar"]
    assert parse(*words).model == ResNetConfig(name="resnet50", stem="cifar")


def test_the_name_alone_changes_nothing_else(parse: Parse):
    """What the other part does not take is then refused at the start."""
    found = parse("--optimizer.name", "sgd").optimizer
    assert (found.name, found.b2) == ("sgd", 0.99)


def test_options_of_parts_are_marked_as_such():
    optimizer = with_metadata(OptimizerConfig, "part_option")
    assert {"b1", "momentum", "options"} <= optimizer.keys()
    assert "learning_rate" not in optimizer
    assert "pretrained" not in with_metadata(ModelConfig, "part_option")
