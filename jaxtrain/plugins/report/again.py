"""Config file that reproduces a run."""

import dataclasses
from typing import Any

from jaxtrain.config import Config
from jaxtrain.config.base import default_of
from jaxtrain.config.import_lines import imports_of

INDENT = "    "


def write_recipe(config: Config) -> str:
    """Return the text of a config file with all fields that differ from defaults."""
    classes: set[type] = set()
    written = _write(config, 1, classes)
    return f"{imports_of(classes)}\n\n\ndef get_config():\n{INDENT}return {written}\n"


def _write(section: Any, depth: int, classes: set[type]) -> str:
    """Return a section's constructor call; add the called classes to `classes`."""
    name, inner = type(section).__name__, INDENT * (depth + 1)
    classes.add(type(section))
    lines = ""
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        if field.init and value != default_of(section, field.name):
            nested = dataclasses.is_dataclass(value)
            text = _write(value, depth + 1, classes) if nested else repr(value)
            lines += f"{inner}{field.name}={text},\n"
    return f"{name}(\n{lines}{INDENT * depth})" if lines else f"{name}()"
