"""Removed fields in saved configs of older versions; see `Section.removed`."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, get_type_hints

from jaxtrain.config.base import Renamed
from jaxtrain.config.classification import ClassificationConfig
from jaxtrain.config.part import METHODS, TASKS, CustomConfig, make_part, part_class
from jaxtrain.errors import UserError

CLASSIFICATION = ClassificationConfig().arguments()


def without_removed(
    values: Mapping[str, Any], section: Any, where: str, path: str = ""
) -> dict[str, Any]:
    """Drop removed fields from saved values of a section, and rename renamed ones.

    Args:
      values: JSON values by field.
      section: Class of the section.
      where: File with the values, for messages.
      path: Path of the section in its config; "" for an entire config.

    Raises:
      UserError: A removed field has a non-default value.
    """
    removed, hints = section.removed(), get_type_hints(section)
    found = dict[str, Any]()
    for name, value in values.items():
        full = f"{path}.{name}" if path else name
        if name in hints or name not in removed:
            inner = hints.get(name)
            if hasattr(inner, "removed") and isinstance(value, Mapping):
                value = without_removed(value, inner, where, full)
            found.setdefault(name, value)
        elif isinstance(default := removed[name], Renamed):
            if value is not None:
                found[default.name] = value
        elif value != default:
            raise UserError(
                f"{where}: {full} = {value!r}: this version of jaxtrain has removed "
                f"the field and always computes with the default {default!r}; use the "
                "version that wrote the file"
            )
    return found


def with_parts(values: dict[str, Any]) -> dict[str, Any]:
    """Convert the task and the method of a config of version 0.1 to the current format.

    Args:
      values: JSON values of a config. Version 0.1 stored a name and a dict of options,
        and the options of classification as fields of `train`.
    """
    values = {**values, "train": {**values.get("train", {})}}
    train, task = values["train"], values.get("task")
    of_classes = {n: train.pop(n) for n in CLASSIFICATION if n in train}
    changed = {
        n: ",".join(map(repr, x)) if isinstance(x, list) else x
        for n, x in of_classes.items()
        if x != CLASSIFICATION[n]
    }
    if isinstance(task, str):
        options = values.pop("task_options", {})
        # User-defined tasks may be derived from classification.
        if part_class(TASKS, task) in (ClassificationConfig, CustomConfig):
            options = {**options, **changed}
        part = make_part(TASKS, task, options)
        values["task"] = dataclasses.asdict(part)
    if isinstance(name := train.pop("method", None), str):
        options = train.pop("method_options", {})
        part = make_part(METHODS, name, options)
        values["method"] = dataclasses.asdict(part)
    return values


def removed_fields(section: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield path and default of the removed fields of a section and nested sections."""
    before = f"{path}." if path else ""
    for name, default in section.removed().items():
        yield before + name, default
    for name, inner in get_type_hints(section).items():
        if hasattr(inner, "removed"):
            yield from removed_fields(inner, before + name)
