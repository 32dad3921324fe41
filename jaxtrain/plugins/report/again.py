"""Config file that reproduces a run."""

import dataclasses
from typing import Any

from jaxtrain.config import Config
from jaxtrain.config.base import default_of

INDENT = "    "


def write_recipe(config: Config) -> str:
    """Text of a config file with the fields that differ from the defaults."""
    names = {"Config"}
    written = _write(config, 1, names)
    imports = "".join(f"{INDENT}{name},\n" for name in sorted(names))
    return (
        f"from jaxtrain.config import (\n{imports})\n\n\n"
        f"def get_config():\n{INDENT}return {written}\n"
    )


def _write(section: Any, depth: int, names: set[str]) -> str:
    """Constructor call of a config section; adds its class names to `names`."""
    name, inner = type(section).__name__, INDENT * (depth + 1)
    names.add(name)
    lines = ""
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        if value != default_of(section, field.name):
            nested = dataclasses.is_dataclass(value)
            text = _write(value, depth + 1, names) if nested else repr(value)
            lines += f"{inner}{field.name}={text},\n"
    return f"{name}(\n{lines}{INDENT * depth})" if lines else f"{name}()"
