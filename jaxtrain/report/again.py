"""A config as a recipe: the file that makes its run again."""

import dataclasses
from typing import Any

from jaxtrain.config import Config

INDENT = "    "


def write_recipe(config: Config) -> str:
    """Return the text of a config file, with the fields that are no defaults."""
    names = sorted({"Config", *_sections(config)})
    imports = "".join(f"{INDENT}{name},\n" for name in names)
    return (
        f"from jaxtrain.config import (\n{imports})\n\n\n"
        f"def get_config():\n{INDENT}return {_write(config, 1)}\n"
    )


def _changed(section: Any) -> dict[str, Any]:
    """Return the fields of a section that differ from its own defaults."""
    found = {}
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        else:
            default = field.default
        if value != default:
            found[field.name] = value
    return found


def _sections(section: Any) -> set[str]:
    found = set()
    for value in _changed(section).values():
        if dataclasses.is_dataclass(value):
            found |= {type(value).__name__, *_sections(value)}
    return found


def _write(section: Any, depth: int) -> str:
    inner = INDENT * (depth + 1)
    lines = [
        f"{inner}{name}="
        + (_write(value, depth + 1) if dataclasses.is_dataclass(value) else repr(value))
        + ",\n"
        for name, value in _changed(section).items()
    ]
    name = type(section).__name__
    return f"{name}(\n{''.join(lines)}{INDENT * depth})" if lines else f"{name}()"
