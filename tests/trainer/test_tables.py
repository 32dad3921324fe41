"""What a finished run ends with: its results, and commands that fit its task."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jaxtrain import plugin
from jaxtrain.config import CheckpointConfig, Config
from jaxtrain.plugin import Table
from jaxtrain.tasks.base import Task
from jaxtrain.tasks.metrics import Goal
from jaxtrain.trainer import next_commands
from jaxtrain.trainer.next_commands import NEXT_COMMANDS, show_next
from jaxtrain.trainer.tables import describe_result
from tests.helpers.rows import each_row

NAMES = ("cat", "dog", "hen")


class NextCommandsTask(Task):
    """Puts out what a test says."""

    def __init__(self, output_spec: Any, class_names: tuple[str, ...] | None):
        self.num_outputs = len(NAMES)
        self.output_spec, self.class_names = output_spec, class_names


ALL = ["evaluate", "predict", "export", "serve"]


@pytest.mark.plugins
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


def test_commands_of_plugins_vanish_with_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(plugin, "installed", lambda: ())
    table = Table("next_commands", NEXT_COMMANDS.core)
    monkeypatch.setattr(next_commands, "NEXT_COMMANDS", table)
    show_next(Path("run"), Config(), NextCommandsTask((3,), NAMES))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines[1:]] == ALL[:2]


@each_row(
    ("keep_best", "row", "told"),
    [
        (0, "best evaluation", "the last weights were tested"),
        (1, "best weights", "the checkpoint was removed"),
    ],
)
def test_results_say_why_the_best_weights_were_not_tested(
    keep_best: int, row: str, told: str
):
    """By the config, or as something is wrong; the times are those of all starts."""
    config = Config(checkpoint=CheckpointConfig(keep_best=keep_best))
    task = SimpleNamespace(shown=("accuracy",))
    setup: Any = SimpleNamespace(task=task, best=Goal("accuracy", True), config=config)
    last = {"step": 9, "validation": {"accuracy": 0.875}}
    summary = {
        "eval": {"accuracy": 0.75, "loss": 0.5, "num_examples": 8},
        "model": last,
        "last": last,
        "best": {"step": 3, "value": 1.0},
        "train_seconds": 40.0,
        "compile_seconds": 2.0,
        "seconds": {"step": 40.0, "compile": 12.0},
    }
    rows = describe_result(setup, summary, Path("run"))
    assert rows["tested weights"] == "step 9, validation accuracy 0.8750"
    assert rows[row].startswith("step 3, validation accuracy 1.0000")
    assert told in rows[row] and "not kept" not in rows[row]
    assert rows["time"] == "40.0 s, and 12.0 s to compile"
