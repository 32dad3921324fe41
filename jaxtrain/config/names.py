"""Fields that name a row of a table: their help lists the rows."""

import importlib
from typing import Any

import tyro


def row_of(table: str) -> Any:
    """Return the annotation of a field that names a row of a table.

    The table is looked at when help is shown, and not before: the modules that hold
    tables import JAX, which takes a second, and depend on the schema.

    Args:
      table: MODULE:NAME of a mapping, whose keys are the names.
    """
    module, _, name = table.partition(":")

    def hint(default: str) -> str:
        rows = getattr(importlib.import_module(module), name)
        # Some say in what form they are written.
        names = ", ".join(getattr(row, "form", name) for name, row in rows.items())
        return f"(one of: {names}; default: {default})"

    return tyro.conf.arg(help_behavior_hint=hint)
