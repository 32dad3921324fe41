"""The commands that a finished run ends with take what its task puts out."""

from pathlib import Path
from typing import Any

import pytest

from jaxtrain.config import Config
from jaxtrain.run.tables import show_next
from jaxtrain.tasks.base import Task

NAMES = ("cat", "dog", "hen")


class NextCommandsTask(Task):
    """Puts out what a test says."""

    def __init__(self, output_spec: Any, class_names: tuple[str, ...] | None):
        self.num_outputs = len(NAMES)
        self.output_spec, self.class_names = output_spec, class_names


ALL = ["evaluate", "predict", "export", "serve"]


@pytest.mark.parametrize(
    ("output_spec", "class_names", "commands", "option"),
    [
        (None, NAMES, ALL, "--out predictions.csv"),
        ((3,), NAMES, ALL, "--out predictions.csv"),
        (None, None, ALL[:3], "--out predictions.csv"),
        ((8, 8, 3), None, ALL[:3], "--outputs outputs"),
        ((8, 8, 3), NAMES, ALL[:3], "--outputs outputs"),
        ({"map": (8, 8, 3), "count": ()}, None, ALL[:2], "--outputs outputs"),
    ],
)
def test_commands_are_those_that_take_the_outputs(
    output_spec: Any,
    class_names: tuple[str, ...] | None,
    commands: list[str],
    option: str,
    capsys: pytest.CaptureFixture[str],
):
    show_next(Path("run"), Config(), NextCommandsTask(output_spec, class_names))
    lines = [
        line.split()
        for line in capsys.readouterr().out.splitlines()
        if "main.py" in line
    ]
    assert [line[2] for line in lines] == commands
    assert option in " ".join(lines[1])
