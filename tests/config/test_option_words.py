"""Options by name on the command line, in both forms, with and without a recipe's."""

from pathlib import Path
from typing import Any

import pytest

from jaxtrain.cli import parse
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.rows import each_row

DISTILLATION = (
    'TrainConfig(steps=1, method="distillation", '
    'method_options={"teacher": "runs/a", "temperature": 2, "hard": False})'
)
TEACHER = {"teacher": "runs/a", "temperature": 2, "hard": False}


def options(folder: Path, train: str, *words: str) -> dict[str, Any]:
    path = write_recipe(folder / "recipe.py", recipe(train=train))
    arguments = parse("train", ["--config", str(path), *words])
    return arguments.overrides.train.method_options


@each_row(
    ("words", "expected"),
    [
        ([], TEACHER),
        (["--train.method-options", "teacher", "runs/b"], {"teacher": "runs/b"}),
        (["--train.method-options.teacher", "runs/b"], {"teacher": "runs/b"}),
        (["--train.method_options.temperature", "2.5"], {"temperature": 2.5}),
        (
            ["--train.method-options.teacher-precision", "bf16", "--seed", "3"],
            {"teacher_precision": "bf16"},
        ),
        (
            [
                *("--train.method-options.weight", "0.5", "--train.epochs", "None"),
                *("--train.method-options", "teacher", "c", "weight", "0.25"),
            ],
            {"weight": 0.25, "teacher": "c"},
        ),
    ],
)
def test_what_is_named_replaces_an_option_and_the_others_stay(
    words: list[str], expected: dict[str, Any], tmp_path: Path
):
    found = options(tmp_path, DISTILLATION, *words)
    assert found == {**TEACHER, **expected}
    assert {k: type(v) for k, v in found.items()} == {
        k: type(v) for k, v in {**TEACHER, **expected}.items()
    }


@each_row(
    "words",
    [
        ["--train.method-options.epsilon", "0.1", "--train.method-options.steps", "3"],
        ["--train.method-options.steps=3", "--train.method-options", "epsilon", "0.1"],
    ],
)
def test_a_recipe_without_options_takes_both_forms(words: list[str], tmp_path: Path):
    train = 'TrainConfig(steps=1, method="adversarial")'
    assert options(tmp_path, train, *words) == {"epsilon": 0.1, "steps": 3}


def test_a_field_alone_leaves_no_options(tmp_path: Path):
    words = ["--train.method", "sam", "--train.method-options"]
    assert options(tmp_path, DISTILLATION, *words) == {}


def test_options_of_the_root_and_numbers_of_channels(tmp_path: Path):
    path = write_recipe(tmp_path / "recipe.py", recipe())
    words = ["--task-options.delta", "2", "--model.channels.conv1", "4"]
    config = parse("train", ["--config", str(path), *words]).overrides
    assert config.task_options == {"delta": 2}
    assert config.model.channels == {"conv1": 4}


def test_a_name_without_a_value_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as end:
        options(tmp_path, DISTILLATION, "--train.method-options.teacher")
    assert end.value.code == 2
    assert "train.method-options" in capsys.readouterr().err
