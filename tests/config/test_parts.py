"""Parts of a config with their options: made by name, written, read and switched."""

import json
from pathlib import Path
from typing import Any

import pytest

from jaxtrain import cli
from jaxtrain.config import (
    ClassificationConfig,
    Config,
    CustomConfig,
    RegressionConfig,
    SamConfig,
    differences,
    from_json,
    get,
    paths,
    replace,
    to_json,
    values_of,
)
from jaxtrain.config.checking import check_names
from jaxtrain.config.model import MODELS
from jaxtrain.config.optimizer import OPTIMIZERS
from jaxtrain.config.part import (
    METHODS,
    TASKS,
    PartTable,
    make_part,
    part_class,
    part_classes,
)
from jaxtrain.config.schedule import SCHEDULES
from jaxtrain.errors import UserError
from jaxtrain.problems import ProblemsError
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.rows import each_row

TABLES = {
    "task": TASKS,
    "method": METHODS,
    "model": MODELS,
    "optimizer": OPTIMIZERS,
    "optimizer.schedule": SCHEDULES,
}
KINDS = [(field, name) for field in TABLES for name in part_classes(TABLES[field])]
OWN: dict[str, Any] = {"size": 2, "rate": 0.5, "name": "a", "flips": True}
# Options of some parts that are not their defaults.
CHANGED: dict[str, dict[str, Any]] = {
    "classification": {"class_weights": (1.0, 2.5), "label_smoothing": 0.1},
    "regression": {"loss": "gaussian", "mean": (0.5, 2.0), "std": (1.0, 3.0)},
    "multilabel": {"positive_weights": (1.0, 2.0)},
    "detection": {"strides": (4, 8), "category_ids": (3, 1)},
    "segmentation": {"class_weights": "balanced", "ignore_value": 7},
    "embedding": {"loss": "contrastive", "size": 8},
    "self_supervised": {"loss": "byol", "size": 8},
    "sam": {"rho": 0.1, "adaptive": True},
    "adversarial": {"norm": "l2", "steps": 3, "step_size": 0.1},
    "trades": {"beta": 2.0},
    "distillation": {"teacher": "runs/a", "hard": True},
    "resnet50": {"stem": "cifar", "width": 0.5},
    "unet": {"backbone": "resnet34", "decoder_channels": (32, 16)},
    "adamw": {"b2": 0.99, "nesterov": True},
    "step": {"milestones": (0.25, 0.5), "factor": 0.5},
}


def parsed(folder: Path, *words: str, **sections: str) -> Config:
    path = write_recipe(folder / "recipe.py", recipe(**sections))
    return cli.parse("train", ["--config", str(path), *words]).overrides


@each_row(("field", "name"), KINDS)
def test_a_part_is_read_back(field: str, name: str):
    for options in ({}, CHANGED.get(name, {})):
        part = make_part(TABLES[field], name, options)
        config = replace(Config(), field, part)
        read = from_json(to_json(config))
        assert read == config and get(read, field) == part
        stored = json.loads(to_json(config))
        for section in field.split("."):
            stored = stored[section]
        assert stored["name"] == name == part.name
        assert part.changed() == options
        assert make_part(TABLES[field], name, part.as_text()) == part


@each_row("field", TABLES)
def test_a_part_of_ones_own_is_read_back(field: str):
    part = TABLES[field].custom(name="my.py:Part", options=OWN)
    config = replace(Config(), field, part)
    assert from_json(to_json(config)) == config
    assert part.arguments() == part.changed() == part.as_text() == OWN
    assert make_part(TABLES[field], part.name, OWN) == part


def test_text_is_converted_to_numbers():
    part = make_part(TASKS, "regression", {"mean": "1,2.5", "std": "1,2"})
    assert part == RegressionConfig(mean=(1.0, 2.5), std=(1, 2))
    assert part.as_text() == {"mean": "1.0,2.5", "std": "1.0,2.0"}
    part = part.updated({"loss": "l1", "mean": "3,4"})
    assert part == RegressionConfig(loss="l1", mean=(3, 4), std=(1, 2))


@each_row(
    ("options", "told"),
    [
        ({"los": "l1"}, "regression takes loss, level, .*, not 'los'"),
        ({"loss": "l3"}, "loss = 'l3': expected one of mse, l1"),
        ({"mean": "a,b"}, "mean = 'a,b': expected"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], told: str):
    with pytest.raises(UserError, match=told):
        make_part(TASKS, "regression", options)


@each_row(
    ("part", "told"),
    [
        ("regression", "expected an object with a field `name`, not 'regression'"),
        ({"loss": "l1"}, "expected an object with a field `name`"),
        ({"name": "regression", "delta": 1}, "delta"),
        ({"name": "my.py:Part", "options": {}, "size": 1}, "size"),
    ],
)
def test_a_stored_part_that_is_none_is_refused(part: Any, told: str):
    values = json.loads(to_json(Config()))
    del values["sha256"]
    field = "task"
    with pytest.raises(UserError, match=told):
        from_json(json.dumps({**values, field: part}))


def test_a_stored_part_of_a_plugin_that_is_not_installed_is_read():
    values = json.loads(to_json(Config()))
    del values["sha256"]
    stored = {"name": "of_a_plugin", "size": 2, "sizes": [1, 2], "rate": None}
    read = from_json(json.dumps({**values, "task": stored}))
    assert read.task == CustomConfig(name="of_a_plugin", options={"size": 2})
    (problem,) = check_names(read)
    assert problem.text.startswith("task = 'of_a_plugin': expected classification, ")
    assert from_json(to_json(read)) == read


def test_paths_are_those_of_the_parts_of_a_config():
    config = Config(task=RegressionConfig(loss="l1"), method=SamConfig(rho=0.1))
    found = paths(config)
    assert {"task.name", "task.loss", "task.levels", "method.rho"} <= {*found}
    assert "task.label_smoothing" not in found and "task.label_smoothing" in paths()
    assert [path for path in paths() if path.startswith("method")] == ["method.name"]
    assert values_of(config)["method.rho"] == 0.1 and found == [*values_of(config)]


def test_a_resumed_run_has_the_same_parts():
    old = Config(task=ClassificationConfig(label_smoothing=0.1))
    assert differences(old, old) == []
    new = Config(task=ClassificationConfig(), method=SamConfig(rho=0.1))
    found = dict(line.split(": ", 1) for line in differences(old, new))
    assert found["task.label_smoothing"] == "0.1 -> 0.0"
    assert found["method.name"] == "'plain' -> 'sam'"
    assert found["method.rho"] == "None -> 0.1"
    other = Config(task=RegressionConfig())
    changed = [line.split(": ")[0] for line in differences(old, other)]
    assert {"task.name", "task.loss", "task.label_smoothing"} <= {*changed}


# --- the command line ----------------------------------------------------------------


@each_row(
    ("words", "part", "told"),
    [
        (
            ["--task", "multilabel"],
            {"task": "multilabel"},
            "--task multilabel ignores the recipe's regression options: "
            "task.loss = 'gaussian', task.mean = (1.0,), task.std = (2.0,)",
        ),
        (
            ["--task=my.py:T", "--task.options", "size", "2"],
            {"task": "my.py:T"},
            "--task my.py:T ignores the recipe's regression options: ",
        ),
        (
            ["--method", "plain"],
            {"method": "plain"},
            "--method plain ignores the recipe's sam options: method.rho = 0.1",
        ),
        (["--task", "regression", "--method", "sam"], {}, ""),
    ],
)
def test_another_part_ignores_the_options_of_the_recipe(
    words: list[str],
    part: dict[str, str],
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    sections = {
        "task": 'RegressionConfig(loss="gaussian", mean=(1.0,), std=(2.0,))',
        "method": "SamConfig(rho=0.1)",
    }
    found = parsed(tmp_path, *words, **sections)
    before = parsed(tmp_path, **sections)
    for field in TABLES:
        same = get(found, field) == get(before, field)
        assert same == (field not in part)
        assert get(found, field).name == part.get(field, get(before, field).name)
    err = capsys.readouterr().err
    assert told in err and err.count("ignores the recipe's") == bool(told)


def test_a_switched_part_has_options_of_the_command_line(tmp_path: Path):
    words = ["--task", "regression", "--task.loss", "huber", "--method", "sam"]
    found = parsed(tmp_path, *words, "--method.rho", "0.1")
    assert found.task == RegressionConfig(loss="huber")
    assert found.method == SamConfig(rho=0.1)


@each_row(
    ("words", "told"),
    [
        ("--task regresion", "task = 'regresion' (perhaps you meant regression): "),
        ("--model resnt", "model = 'resnt' (perhaps you meant "),
        ("--optimizer.schedule cos", "optimizer.schedule = 'cos'"),
        ("--task clas", "expected classification, regression, multilabel, "),
        ("--method fgsm", "method = 'fgsm': expected plain, sam, "),
        ("--task", "--task needs a name: one of classification, regression, "),
        ("--method --seed 3", "--method needs a name: one of plain, sam, "),
        ("--task.name", "--task needs a name: one of "),
    ],
)
def test_a_name_that_there_is_not_is_refused(words: str, told: str, tmp_path: Path):
    with pytest.raises(UserError) as error:
        config = parsed(tmp_path, *words.split())
        raise ProblemsError(check_names(config))
    assert told in str(error.value)


@each_row(
    "words",
    [
        "--task.level 0.5",
        "--task regression --task.label-smoothing 0.1",
        "--method.rho 0.1",
        "--method sam --method.epsilon 0.1",
        "--task.options size 2",
        "--task my.py:T --task.size 2",
    ],
)
def test_an_option_of_another_part_is_refused(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises((SystemExit, UserError)) as error:
        parsed(tmp_path, *words.split())
    (option,) = [w for w in words.split() if "." in w and w.startswith("--")]
    if isinstance(error.value, SystemExit):
        assert error.value.code == 2
        assert f"Unrecognized options: {option}" in capsys.readouterr().err
    else:
        assert option in str(error.value)


def test_a_name_stands_for_a_part_with_its_defaults():
    """In recipes; and a `CustomConfig` of a known name for the class of that name."""
    named: Any = {"task": "regression", "method": "sam"}
    assert Config(**named) == Config(task=RegressionConfig(), method=SamConfig())
    method = CustomConfig(name="sam", options={"rho": 0.1})
    assert Config(method=method).method == SamConfig(rho=0.1)
    unknown: Any = {"task": "regresion"}
    assert Config(**unknown).task == CustomConfig(name="regresion")


@pytest.mark.parametrize("value", [3, None, RegressionConfig])
def test_other_values_are_no_parts(value: Any):
    with pytest.raises(UserError, match=r"task = .*: expected an instance, such as"):
        Config(task=value)


class Renamed:
    """A task of a plug-in that inherits the options of another."""

    Options = RegressionConfig


OTHER_TABLE = {"regression": Renamed, "renamed": Renamed}


def test_inherited_options_do_not_rename_a_task():
    """Otherwise a run of the subclass would train its base class."""
    table = PartTable(f"{__name__}:OTHER_TABLE", CustomConfig)
    assert part_class(table, "regression") is RegressionConfig
    assert part_class(table, "renamed") is CustomConfig
    part = make_part(table, "renamed", {"loss": "l1"})
    assert part == CustomConfig(name="renamed", options={"loss": "l1"})
