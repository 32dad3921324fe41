"""A name on the command line that switches a part of the config."""

from collections.abc import Callable
from pathlib import Path

import pytest

from jaxtrain import cli
from jaxtrain.config import (
    AdamWConfig,
    Config,
    CosineSchedule,
    LeNetConfig,
    OptimizerConfig,
    ResNetConfig,
    SGDConfig,
    StepSchedule,
)
from jaxtrain.errors import UserError
from tests.helpers.rows import each_row

RECIPE = """
from jaxtrain.config import *

def get_config():
    optimizer = AdamWConfig(
        learning_rate=1e-3, weight_decay=0.05, b2=0.99, schedule=CosineSchedule()
    )
    model = ResNetConfig(name="resnet18", stem="cifar")
    return Config(optimizer=optimizer, model=model)
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
    told = "--optimizer sgd ignores the recipe's adamw options: optimizer.b2 = 0.99"
    assert told in capsys.readouterr().err


def test_the_same_part_keeps_its_options(parse: Parse):
    assert parse("--optimizer", "adamw") == parse()


def test_a_model_is_switched_likewise(parse: Parse):
    assert parse("--model", "lenet").model == LeNetConfig()
    words = ["--model", "resnet50", "--model.stem", "cifar"]
    assert parse(*words).model == ResNetConfig(name="resnet50", stem="cifar")


def test_a_schedule_is_switched_likewise(parse: Parse):
    words = "--optimizer.schedule step --optimizer.schedule.every 0.1"
    found = parse(*words.split()).optimizer
    assert (found.name, found.schedule) == ("adamw", StepSchedule(every=0.1))
    words = "--optimizer sgd --optimizer.schedule.end-factor 0.1"
    found = parse(*words.split()).optimizer
    assert (found.name, found.schedule) == ("sgd", CosineSchedule(end_factor=0.1))


@each_row(
    ("words", "told"),
    [
        ("--optimizer sgd --optimizer.b1 0.8", "b1 is an option of adam, adamw, lamb"),
        ("--optimizer.schedule.cycles 2", "cycles is an option of cosine_restarts"),
        (
            "--optimizer.schedule.end-facto 0",
            "perhaps you meant .*end-factor",
        ),
        ("--model.aux-weight 0", "aux_weight is an option of googlenet, inception_v3"),
        (
            "--model lenet --model.stem cifar",
            "--model.stem: no such option; lenet has no options",
        ),
    ],
)
def test_an_option_of_another_part_names_the_parts_that_have_it(
    words: str, told: str, parse: Parse
):
    with pytest.raises(UserError, match=told):
        parse(*words.split())


def test_options_are_the_fields_that_not_all_parts_have():
    assert SGDConfig.option_names() == ("momentum", "nesterov")
    assert "pretrained" not in ResNetConfig.option_names()
    assert AdamWConfig().shared().keys() == OptimizerConfig().shared().keys()
