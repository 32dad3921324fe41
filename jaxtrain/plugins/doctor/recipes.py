"""Text of a recipe: a Python file with a reason above each value."""

import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jaxtrain.config import (
    AugmentConfig,
    CheckpointConfig,
    Config,
    DataConfig,
    ModelConfig,
    OptimizerConfig,
    SoundConfig,
    TrainConfig,
)
from jaxtrain.config.import_lines import imports_of
from jaxtrain.config.part import TASKS, make_part
from jaxtrain.console import printable
from jaxtrain.invocation import command
from jaxtrain.plugins.doctor.advice import Advice

CLASSES: dict[str, type] = {
    "augment": AugmentConfig,
    "checkpoint": CheckpointConfig,
    "data": DataConfig,
    "model": ModelConfig,
    "optimizer": OptimizerConfig,
    "sound": SoundConfig,
    "train": TrainConfig,
}
# Subsections of the `data` section.
OF_DATA = ("sound", "augment")
WIDTH = 88


def recipe_text(
    advice: Advice,
    task: str,
    source: str,
    out: Path,
    told: Iterable[str],
    looked_at: str = "images",
) -> str:
    """Return the source code of a recipe, formatted like ruff's output.

    Args:
      advice: Section -> field -> (value, reason).
      task: Name of the task.
      source: Value of `data.source`.
      out: Path of the recipe, for the command in its docstring.
      told: Paragraphs of the recipe's docstring.
      looked_at: Plural noun for the examples.
    """
    part = make_part(TASKS, task)
    classes = {**CLASSES, "task": type(part)}
    used = {Config, *(classes[section] for section in advice)}
    of_task = part != Config().task or "task" in advice
    used |= {type(part)} if of_task else set()
    paragraphs = [
        line
        for text in told
        for line in _in_docstring(textwrap.fill(text, WIDTH)).splitlines()
    ]
    lines = [
        f'"""{_in_docstring(source)}, after a look at its {looked_at}.',
        "",
        f"    {_in_docstring(command('--config', out))}",
        "",
        *paragraphs,
        '"""',
        "",
        *imports_of(used).splitlines(),
        "",
        "",
        "def get_config() -> Config:",
        "    return Config(",
    ]
    if of_task and "task" not in advice:
        lines.append(f"        task={type(part).__name__}(),")
    for section, fields in advice.items():
        if section in OF_DATA:
            continue
        lines.append(f"        {section}={classes[section].__name__}(")
        lines += _fields(fields, 12)
        for within in OF_DATA if section == "data" else ():
            if within in advice:
                lines.append(f"            {within}={classes[within].__name__}(")
                lines += _fields(advice[within], 16)
                lines.append("            ),")
        lines.append("        ),")
    return "\n".join([*lines, "    )", ""])


def _fields(fields: dict[str, tuple[Any, str]], indent: int) -> list[str]:
    """Return the lines of the fields, each below a comment with the reason."""
    space, lines = " " * indent, []
    for field, (value, reason) in fields.items():
        if reason:
            comment = f"{reason[0].upper()}{reason[1:]}."
            start = f"{space}# "
            lines += textwrap.wrap(
                comment, WIDTH, initial_indent=start, subsequent_indent=start
            )
        text = repr(value)
        if isinstance(value, str) and not {'"', "\\"} & set(text):
            # ruff and black prefer double quotes.
            text = f'"{text[1:-1]}"'
        elif isinstance(value, tuple) and not any(
            {*"\"'\\"} & {*str(x)} for x in value
        ):
            text = text.replace("'", '"')
        lines.append(f"{space}{field}={text},")
    return lines


def _in_docstring(text: str) -> str:
    return printable(text).replace("\\", "\\\\").replace('"', '\\"')
