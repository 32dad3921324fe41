"""Options by name on the command line, in both forms, with and without a recipe's."""

from pathlib import Path
from typing import Any

import pytest

from jaxtrain.cli import parse
from jaxtrain.config import Config, CustomConfig, RegressionConfig
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.rows import each_row

NAME = "my.py:Method"
TEACHER = {"teacher": "runs/a", "temperature": 2, "hard": False}
TAUGHT = f"CustomConfig(name={NAME!r}, options={TEACHER})"


def parsed(folder: Path, *words: str, **sections: str) -> Config:
    path = write_recipe(folder / "recipe.py", recipe(**sections))
    return parse("train", ["--config", str(path), *words]).overrides


def options(folder: Path, method: str, *words: str) -> dict[str, Any]:
    return parsed(folder, *words, method=method).method.arguments()


@each_row(
    ("words", "expected"),
    [
        ([], TEACHER),
        (["--method.options", "teacher", "runs/b"], {"teacher": "runs/b"}),
        (["--method.options.teacher", "runs/b"], {"teacher": "runs/b"}),
        (["--method.options.temperature", "2.5"], {"temperature": 2.5}),
        (
            ["--method.options.teacher-precision", "bf16", "--seed", "3"],
            {"teacher_precision": "bf16"},
        ),
        (
            [
                *("--method.options.weight", "0.5", "--train.epochs", "None"),
                *("--method.options", "teacher", "c", "weight", "0.25"),
            ],
            {"weight": 0.25, "teacher": "c"},
        ),
    ],
)
def test_what_is_named_replaces_an_option_and_the_others_stay(
    words: list[str], expected: dict[str, Any], tmp_path: Path
):
    found = options(tmp_path, TAUGHT, *words)
    assert found == {**TEACHER, **expected}
    assert {k: type(v) for k, v in found.items()} == {
        k: type(v) for k, v in {**TEACHER, **expected}.items()
    }


@each_row(
    "words",
    [
        ["--method.options.epsilon", "0.1", "--method.options.steps", "3"],
        ["--method.options.steps=3", "--method.options", "epsilon", "0.1"],
    ],
)
@each_row("given", [f"CustomConfig(name={NAME!r})", "PlainConfig()"])
def test_a_recipe_without_options_takes_both_forms(
    words: list[str], given: str, tmp_path: Path
):
    found = options(tmp_path, given, "--method", NAME, *words)
    assert found == {"epsilon": 0.1, "steps": 3}


def test_a_field_alone_leaves_no_options(tmp_path: Path):
    assert options(tmp_path, TAUGHT, "--method.options") == {}


@each_row(
    ("words", "task"),
    [
        (["--task.loss", "l1"], RegressionConfig(loss="l1")),
        (
            ["--task.mean", "1", "2", "--task.std", "3", "4"],
            RegressionConfig(loss="huber", mean=(1, 2), std=(3, 4)),
        ),
        (["--task", "regression"], RegressionConfig(loss="huber")),
        (
            ["--task", "a.py:T", "--task.options.delta", "2"],
            CustomConfig(name="a.py:T", options={"delta": 2}),
        ),
    ],
)
def test_options_of_a_task_are_fields(words: list[str], task: Any, tmp_path: Path):
    config = parsed(tmp_path, *words, task='RegressionConfig(loss="huber")')
    assert config.task == task


def test_numbers_of_channels_are_given_by_name(tmp_path: Path):
    config = parsed(tmp_path, "--model.channels.conv1", "4")
    assert config.model.channels == {"conv1": 4}


def test_a_name_without_a_value_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as end:
        options(tmp_path, TAUGHT, "--method.options.teacher")
    assert end.value.code == 2
    assert "method.options" in capsys.readouterr().err
