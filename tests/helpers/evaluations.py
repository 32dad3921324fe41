"""`main.py evaluate` of the run in a folder."""

import json
from pathlib import Path
from typing import Any

from tests.helpers.command import Result
from tests.helpers.processes import Cli


def evaluate(folder: Path, words: str = "", **env: str) -> Result:
    command = ["evaluate", "--workdir", "run", "--out", "found.json", *words.split()]
    return Cli(folder)(*command, **env)


def found(folder: Path, words: str = "", **env: str) -> dict[str, Any]:
    result = evaluate(folder, words, **env)
    assert result.code == 0, result.stderr
    return json.loads((folder / "found.json").read_text())
