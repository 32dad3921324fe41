"""Suggestions at the end of a run: report and next commands."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax

from jaxtrain.config import Config, own_references
from jaxtrain.console import printable
from jaxtrain.invocation import program
from jaxtrain.plugin import Table
from jaxtrain.records.workdir import REPORT
from jaxtrain.tasks.base import Task
from jaxtrain.tasks.decoder import OutputDecoder
from jaxtrain.trainer.task_decoder import decoder_of


class FinishedRun(NamedTuple):
    """A finished run, for which to suggest commands.

    Attributes:
      workdir: Workdir of the run.
      words: Command-line arguments that select the run, such as `--workdir runs/1`.
      config: Resolved config.
      task: Task of the run.
    """

    workdir: Path
    words: str
    config: Config
    task: Task

    @property
    def decoder(self) -> OutputDecoder:
        """Output decoder of the run."""
        return decoder_of(self.config, self.task)


# Function: run -> command, without the name of the program; None if unsupported.
NextCommand = Callable[[FinishedRun], str | None]
NEXT_COMMANDS: Table[NextCommand] = Table(
    "next_commands",
    {
        "evaluate": "jaxtrain.trainer.next_commands:evaluate",
        "predict": "jaxtrain.trainer.next_commands:predict",
    },
)


def evaluate(run: FinishedRun) -> str:
    """Command that evaluates the model."""
    return f"evaluate {run.words}"


def predict(run: FinishedRun) -> str:
    """Command for predictions on images, with the decoder's `command_options`."""
    return f"predict {run.words} {run.decoder.command_options} IMAGES"


def show_next(workdir: Path, config: Config, task: Task) -> None:
    """Print the path of the report, and commands for the trained model."""
    if jax.process_index() != 0:
        return
    report, words = workdir / REPORT, f"--workdir {shlex.quote(str(workdir))}"
    if own_references(config):
        # Custom modules that the config names are imported only with --trust.
        words += " --trust"
    run = FinishedRun(workdir, words, config, task)
    commands = filter(None, (suggest(run) for suggest in NEXT_COMMANDS.values()))
    lines = [f"report: {report}"] if report.is_file() else []
    lines += ["next:", *(f"  {program()} {command}" for command in commands)]
    print("\n".join(map(printable, lines)))
