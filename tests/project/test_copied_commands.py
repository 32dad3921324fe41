"""Commands in messages, which a shell takes as they are, whatever the folder's name."""

import ast
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from jaxtrain import invocation
from jaxtrain.config import DataConfig
from jaxtrain.data import opening
from jaxtrain.errors import UserError
from jaxtrain.inference import temperature
from tests.helpers.processes import ROOT
from tests.helpers.rows import each_row
from tests.helpers.trees import nodes

BIN = "/opt/my env/bin"
ORIGIN = {"step": 1, "views": None, "run": None}


def refusal(function: Callable[[], object]) -> str:
    with pytest.raises(UserError) as caught:
        function()
    return str(caught.value)


def missing_temperature(folder: Path) -> str:
    return refusal(lambda: temperature.read(folder, ORIGIN))


def missing_tfds(folder: Path) -> str:
    config = DataConfig(source="tfds:mnist", data_dir=str(folder))
    return refusal(lambda: opening.open_store(config))


def missing_packed(folder: Path) -> str:
    config = DataConfig(source=f"packed:{folder}")
    return refusal(lambda: opening.open_store(config))


def new_recipe(folder: Path) -> str:
    from jaxtrain.plugins.doctor.recipes import recipe_text

    return recipe_text({}, "classification", "digits", folder, [])


MESSAGES = {
    "--workdir": missing_temperature,
}
OF_PLUGINS = {
    "--data-dir": missing_tfds,
    "--out": missing_packed,
    "--config": new_recipe,
}


@each_row("option", MESSAGES)
def test_a_path_is_one_word(option: str, tmp_path: Path):
    check_path(option, MESSAGES[option], tmp_path)


@pytest.mark.plugins
@each_row("option", OF_PLUGINS)
def test_a_path_in_a_message_of_a_plugin_is_one_word(option: str, tmp_path: Path):
    check_path(option, OF_PLUGINS[option], tmp_path)


def check_path(option: str, message: Callable[[Path], str], tmp_path: Path) -> None:
    folder = tmp_path / "my photos & more"
    folder.mkdir(exist_ok=True)
    told = message(folder)
    (command,) = re.findall(r"python main\.py .*", told)
    words = shlex.split(command)
    assert words[words.index(option) + 1] == str(folder)


@each_row(
    ("script", "interpreter", "expected"),
    [
        (f"{BIN}/jaxtrain", f"{BIN}/python", "jaxtrain"),
        ("/else/bin/jaxtrain", "/else/bin/python", "/else/bin/jaxtrain"),
        ("main.py", "python", "python main.py"),
        ("main.py", f"{BIN}/python", "python main.py"),
        ("main.py", "python3", "python3 main.py"),
        ("../a b/main.py", ".venv/bin/python", ".venv/bin/python '../a b/main.py'"),
        ("/x/jaxtrain/__main__.py", "python3", "python3 -m jaxtrain"),
    ],
)
def test_the_program_is_shown_as_it_was_called(
    script: str, interpreter: str, expected: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(shutil, "which", lambda name: f"{BIN}/{name}")
    monkeypatch.setattr(invocation, "_program", (script, interpreter))
    folder = Path("my photos")
    assert invocation.command("data", folder) == f"{expected} data 'my photos'"
    monkeypatch.setattr(invocation, "_program", None)  # As in a notebook.
    assert invocation.command("plan") == "jaxtrain plan"


def test_all_messages_take_the_program_from_one_place():
    found = []
    for path, inside in nodes().items():
        own = {
            node.body[0].value
            for node in inside
            if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
            if node.body and isinstance(node.body[0], ast.Expr)
        }
        found += [
            f"{path}:{node.lineno}: {node.value}"
            for node in inside
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
            if node not in own and re.search(r"main\.py [\w-]", node.value)
        ]
    templates = (ROOT / "jaxtrain").rglob("*.j2")
    found += [str(path) for path in templates if "main.py" in path.read_text()]
    assert found == []
