"""Commands in messages, which a shell takes as they are, whatever the folder's name."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from jaxtrain.config import DataConfig
from jaxtrain.data import sources
from jaxtrain.errors import UserError
from jaxtrain.inference import temperature
from jaxtrain.tools.recipes import recipe_text
from tests.helpers.rows import each_row

ORIGIN = {"step": 1, "views": None, "run": None}


def refusal(function: Callable[[], object]) -> str:
    with pytest.raises(UserError) as caught:
        function()
    return str(caught.value)


def missing_temperature(folder: Path) -> str:
    return refusal(lambda: temperature.read(folder, ORIGIN))


def missing_tfds(folder: Path) -> str:
    config = DataConfig(source="tfds:mnist", data_dir=str(folder))
    return refusal(lambda: sources.open_store(config))


def missing_packed(folder: Path) -> str:
    config = DataConfig(source=f"packed:{folder}")
    return refusal(lambda: sources.open_store(config))


def new_recipe(folder: Path) -> str:
    return recipe_text({}, "classification", "digits", folder, [])


MESSAGES = {
    "--workdir": missing_temperature,
    "--data-dir": missing_tfds,
    "--out": missing_packed,
    "--config": new_recipe,
}


@each_row("option", MESSAGES)
def test_a_path_is_one_word(option: str, tmp_path: Path):
    folder = tmp_path / "my photos & more"
    folder.mkdir(exist_ok=True)
    told = MESSAGES[option](folder)
    (command,) = re.findall(r"python main\.py .*", told)
    words = shlex.split(command)
    assert words[words.index(option) + 1] == str(folder)
