"""Fields that name a row of a table: their help lists the rows."""

import ast
from pathlib import Path
from typing import Any

import tyro

import jaxtrain
from jaxtrain.config.base import Section
from jaxtrain.config.classification import ClassificationOptions
from jaxtrain.plugin import resolve

# Those that are a `Table`.
TABLES = (
    "jaxtrain.data:SOURCES",
    "jaxtrain.models:CLASSIFIERS",
    "jaxtrain.models:MODELS",
    "jaxtrain.tasks:TASKS",
    "jaxtrain.training.methods:METHODS",
)
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
    """Return the names of a table's rows: of a `Table`, else read from its source.

    Modules that hold dicts are not imported: they depend on the schema, and on JAX,
    which takes a second that nobody wants to wait for help.

    Args:
      table: MODULE:NAME of a `Table`, whose module imports no JAX, or of a dict that is
        written out there.
    """
    if table in TABLES:
        return [*resolve(table)]
    module, _, name = table.partition(":")
    for node in ast.parse(_file(module).read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        rows = getattr(node, "value", None)
        if isinstance(rows, ast.Dict) and [ast.unparse(t) for t in targets] == [name]:
            return [ast.literal_eval(key) for key in rows.keys if key is not None]
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
    table = resolve(OPTIONS[field])
    found = {row: kind.Options for row, kind in table.items() if kind.Options}
    return {k: v for k, v in found.items() if v is not ClassificationOptions}
