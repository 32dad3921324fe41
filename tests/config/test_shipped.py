"""Recipes by name."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from jaxtrain import cli
from jaxtrain.config import shipped
from jaxtrain.errors import UserError
from tests.helpers.processes import ROOT


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_name_is_that_of_a_recipe_from_any_folder():
    assert shipped.find("digits") == ROOT / "configs" / "digits.py"
    for words in (["--config", "digits"], ["--config=digits"]):
        arguments = cli.parse("train", [*words, "--optimizer.learning-rate", "0.5"])
        assert arguments.config == ROOT / "configs" / "digits.py"
        assert arguments.overrides.optimizer.learning_rate == 0.5


def test_a_path_that_exists_counts_first(elsewhere: Path):
    (elsewhere / "digits").write_text("")
    assert shipped.find("digits") == Path("digits")
    assert shipped.find(str(elsewhere / "x.py")) == elsewhere / "x.py"


def test_a_folder_of_data_is_no_recipe(elsewhere: Path):
    (elsewhere / "digits").mkdir()
    assert shipped.find("digits").suffix == ".py"


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("digit", "perhaps you meant digits"),
        ("imagenet_resnet", "imagenet_resnet50 or "),
        ("xyz", "give the path of a recipe, or byol, cifar10"),
    ],
)
def test_an_unknown_name_lists_those_that_come_near(named: str, told: str):
    with pytest.raises(UserError, match=f"--config {named}: .*{told}"):
        shipped.find(named)


@pytest.mark.slow
def test_an_installed_wheel_has_the_recipes(elsewhere: Path):
    sources, installed = elsewhere / "sources", elsewhere / "installed"
    for name in ("jaxtrain", "configs"):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, sources / name, ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources / name)
    pip = [sys.executable, "-m", "pip"]
    subprocess.run(
        [*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", ".", sources], check=True
    )
    (wheel,) = elsewhere.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(installed)
    words = "--config digits --train.steps 1 --optimizer.warmup-fraction None"
    subprocess.run(
        [sys.executable, "-m", "jaxtrain", *words.split(), "--platform", "cpu"],
        env={**os.environ, "PYTHONPATH": str(installed)},
        check=True,
    )
    run = json.loads((elsewhere / "runs/digits/summary.json").read_text())
    assert run["step"] == 1
