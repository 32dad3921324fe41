"""Fields that name a row of a table: their help lists the rows."""

import ast
import importlib
import importlib.util
from pathlib import Path
from typing import Any

import tyro

from jaxtrain.config.base import Section

# Fields of options -> the table whose rows declare theirs, as `Options`.
OPTIONS = {"task_options": "jaxtrain.tasks:TASKS"}


def row_of(table: str) -> Any:
    """Return the annotation of a field that names a row of a table.

    Args:
      table: MODULE:NAME of a dict that is written out there; its keys are the names.
    """

    def hint(default: str) -> str:
        return f"(one of: {', '.join(names_of_rows(table))}; default: {default})"

    return tyro.conf.arg(help_behavior_hint=hint)


def names_of_rows(table: str) -> list[str]:
    """Read the names of a table's rows from its source.

    The modules that hold tables are not imported: they depend on the schema, and on
    JAX, which takes a second that nobody wants to wait for help.

    Args:
      table: MODULE:NAME of a dict that is written out there. A row with an argument
        `form` is named in this form; `**OTHER` stands for the rows of a dict that the
        module imports.
    """
    module, _, name = table.partition(":")
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    body = ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        is_table = any(isinstance(t, ast.Name) and t.id == name for t in targets)
        if is_table and isinstance(value := getattr(node, "value", None), ast.Dict):
            found = []
            for key, row in zip(value.keys, value.values, strict=True):
                if key is None:
                    found += names_of_rows(_imported(body, row))
                else:
                    found.append(_form(key, row))
            return found
    raise AssertionError(f"{table} is no dict that is written out")


def _imported(body: list[ast.stmt], value: ast.expr) -> str:
    """Return MODULE:NAME of what a module imports by the name of an expression."""
    assert isinstance(value, ast.Name)
    imports = [node for node in body if isinstance(node, ast.ImportFrom)]
    modules = [i.module for i in imports if any(a.name == value.id for a in i.names)]
    return f"{modules[0]}:{value.id}"


def rows_with_options(field: str) -> dict[str, type[Section]]:
    """Return the options that rows of a table declare, by name, for help and docs.

    Args:
      field: Path of the field that options are given in; of others there are none.
    """
    if field not in OPTIONS:
        return {}
    module, _, name = OPTIONS[field].partition(":")
    table = getattr(importlib.import_module(module), name)
    return {row: kind.Options for row, kind in table.items() if kind.Options}


def _form(key: ast.expr | None, row: ast.expr) -> str:
    keywords = row.keywords if isinstance(row, ast.Call) else []
    forms = [keyword.value for keyword in keywords if keyword.arg == "form"]
    named = forms[0] if forms else key
    assert isinstance(named, ast.Constant), "the names of rows are written out"
    return str(named.value)
