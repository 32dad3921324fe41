"""Commands that install an extra, as messages show them."""

import shlex
import sys
from pathlib import Path

import pytest

from jaxtrain import extras
from tests.helpers.rows import each_row

# Whether pip on the path is that of this Python, and the current folder.
PLACES = {
    "pip install -e '.[serve]'": (True, "project"),
    ".venv/bin/python -m pip install -e '.[serve]'": (False, "project"),
    "pip install -e '{project}[serve]'": (True, "other ü&"),
    "{python} -m pip install -e '{project}[serve]'": (False, "other ü&"),
}


@each_row("expected", PLACES)
def test_the_command_works_from_where_it_is_shown(
    expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    activated, here = PLACES[expected]
    project = tmp_path / "project"
    python = project / ".venv" / "bin" / "python"
    for folder in (python.parent, tmp_path / here):
        folder.mkdir(parents=True, exist_ok=True)
    pip = python.with_name("pip")
    pip.touch(0o755)
    monkeypatch.setattr(extras, "PROJECT", project)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("PATH", str(pip.parent if activated else tmp_path))
    monkeypatch.chdir(tmp_path / here)
    found = extras.install("serve")
    shown = expected.format(project=project, python=shlex.quote(str(python)))
    assert shlex.split(found) == shlex.split(shown)


def test_a_folder_is_no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "optuna_of_mine").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert extras.missing("json", "optuna_of_mine") == "optuna_of_mine"
    assert extras.missing("json") is None
