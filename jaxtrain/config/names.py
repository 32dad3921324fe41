"""Fields that name a row of a table: their help lists the rows."""

import ast
import importlib
from pathlib import Path
from typing import Any

import tyro

import jaxtrain
from jaxtrain.config.base import Section
from jaxtrain.config.classification import ClassificationOptions

# Fields of options -> the table whose rows declare theirs, as `Options`.
OPTIONS = {
    "task_options": "jaxtrain.tasks:TASKS",
    "train.method_options": "jaxtrain.training.methods:METHODS",
}


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
      table: MODULE:NAME of a dict that is written out there; `**OTHER` in it stands for
        the rows of a table that the module imports. A row with an argument `form` is
        named in this form.
    """
    module, _, name = table.partition(":")
    body = ast.parse(_file(module).read_text(encoding="utf-8")).body
    imported = {
        alias.name: f"{node.module}:{alias.name}"
        for node in body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        is_table = any(isinstance(t, ast.Name) and t.id == name for t in targets)
        if is_table and isinstance(value := getattr(node, "value", None), ast.Dict):
            names = []
            for key, row in zip(value.keys, value.values, strict=True):
                if key is None and isinstance(row, ast.Name):
                    names += names_of_rows(imported[row.id])
                else:
                    names.append(_form(key, row))
            return names
    raise AssertionError(f"{table} is no dict that is written out")


def _file(module: str) -> Path:
    """Return the file of a module of this package, without importing what it is in."""
    path = Path(jaxtrain.__file__).parent.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def rows_with_options(field: str) -> dict[str, type[Section]]:
    """Return the options that rows of a table declare, by name, for help and docs.

    Those of classification are fields of the section `train`, and not among them.

    Args:
      field: Path of the field that options are given in; of others there are none.
    """
    if field not in OPTIONS:
        return {}
    module, _, name = OPTIONS[field].partition(":")
    table = getattr(importlib.import_module(module), name)
    found = {row: kind.Options for row, kind in table.items() if kind.Options}
    return {k: v for k, v in found.items() if v is not ClassificationOptions}


def _form(key: ast.expr | None, row: ast.expr) -> str:
    keywords = row.keywords if isinstance(row, ast.Call) else []
    forms = [keyword.value for keyword in keywords if keyword.arg == "form"]
    named = forms[0] if forms else key
    assert isinstance(named, ast.Constant), "the names of rows are written out"
    return str(named.value)
