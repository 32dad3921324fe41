"""Source code of a recipe: a Python file with a reason above each value."""

import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jaxtrain.config import (
    AugmentConfig,
    CheckpointConfig,
    Config,
    DataConfig,
    SoundConfig,
    TrainConfig,
)
from jaxtrain.config.import_lines import imports_of
from jaxtrain.config.model import MODELS
from jaxtrain.config.optimizer import OPTIMIZERS
from jaxtrain.config.part import TASKS, Part, make_part, part_class
from jaxtrain.console import printable
from jaxtrain.invocation import command
from jaxtrain.plugins.doctor.advice import Advice

CLASSES: dict[str, type] = {
    "augment": AugmentConfig,
    "checkpoint": CheckpointConfig,
    "data": DataConfig,
    "sound": SoundConfig,
    "train": TrainConfig,
}
# Subsections of the `data` section.
OF_DATA = ("sound", "augment")
# Sections whose config class depends on the field `name`.
NAMED = {"model": MODELS, "optimizer": OPTIMIZERS}
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
      out: Path of the recipe, for the command in the docstring.
      told: Paragraphs of the recipe's docstring.
      looked_at: Plural noun for the examples.
    """
    part = make_part(TASKS, task)
    classes = {**CLASSES, "task": type(part)}
    for section in NAMED.keys() & advice.keys():
        classes[section] = part_class(NAMED[section], advice[section]["name"][0])
    used = {Config, *(classes[section] for section in advice)}
    values = (value for fields in advice.values() for value, _ in fields.values())
    used |= {type(value) for value in values if isinstance(value, Part)}
    of_task = part != Config().task or "task" in advice
    used |= {type(part)} if of_task else set()
    paragraphs = [
        line
        for text in told
        for line in _in_docstring(textwrap.fill(text, WIDTH)).splitlines()
    ]
    lines = [
        f'"""Recipe for {_in_docstring(source)}, proposed from its {looked_at}.',
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
        kind = classes[section]
        if section in NAMED:
            lines += _comment(fields["name"][1], 8)
            name = fields["name"][0], ""
            has_name = kind.__dataclass_fields__["name"].init
            others = {n: x for n, x in fields.items() if n != "name"}
            fields = {**({"name": name} if has_name else {}), **others}
        lines.append(f"        {section}={kind.__name__}(")
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
    lines = []
    for field, (value, reason) in fields.items():
        lines += _comment(reason, indent)
        text = repr(value)
        if isinstance(value, Part):
            text = f"{type(value).__name__}()"
        elif isinstance(value, str) and not {'"', "\\"} & set(text):
            # ruff and black prefer double quotes.
            text = f'"{text[1:-1]}"'
        elif isinstance(value, tuple) and not any(
            {*"\"'\\"} & {*str(x)} for x in value
        ):
            text = text.replace("'", '"')
        lines.append(f"{' ' * indent}{field}={text},")
    return lines


def _comment(reason: str, indent: int) -> list[str]:
    """Return the lines of a comment, none for an empty reason."""
    if not reason:
        return []
    text, start = f"{reason[0].upper()}{reason[1:]}.", f"{' ' * indent}# "
    return textwrap.wrap(text, WIDTH, initial_indent=start, subsequent_indent=start)


def _in_docstring(text: str) -> str:
    return printable(text).replace("\\", "\\\\").replace('"', '\\"')
