"""Tables of tests over two tiers: some rows are slow, the others exhaustive."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

SLOW, EXHAUSTIVE = pytest.mark.slow, pytest.mark.exhaustive


def thinned(every: int, rows: Iterable[Any]) -> list[Any]:
    """Rows of which each `every`-th is slow, from the first on.

    Args:
      every: Number of rows for each slow one.
      rows: Values of a parameter, or tuples of values, or `pytest.param`.
    """
    return [_mark(row, i % every == 0) for i, row in enumerate(rows)]


def diagonal(*tables: Iterable[Any]) -> list[Any]:
    """Product of tables, of which each value of each table is in a slow row.

    Args:
      tables: Values of each parameter, which may be `pytest.param` of one value.
    """
    columns = [[_param(value) for value in table] for table in tables]
    longest = max(map(len, columns))
    chosen = {tuple(i % len(column) for column in columns) for i in range(longest)}
    rows = []
    for place in itertools.product(*(range(len(column)) for column in columns)):
        cells = [column[i] for column, i in zip(columns, place, strict=True)]
        names = [str(cell.id or cell.values[0]) for cell in cells]
        values = [cell.values[0] for cell in cells]
        rows.append(_mark(pytest.param(*values, id="-".join(names)), place in chosen))
    return rows


def of_plugins(names: Iterable[str], *marked: str) -> list[Any]:
    """Values of a parameter, of which those named need a plug-in."""
    return [
        pytest.param(name, marks=pytest.mark.plugins) if name in marked else name
        for name in names
    ]


def share(items: Sequence[Any], text: str) -> list[Any]:
    """Items of one of several equal parts, such as `2/4` for the second of four."""
    part, parts = map(int, text.split("/"))
    return list(items[part - 1 :: parts])


def _param(row: Any) -> Any:
    if hasattr(row, "marks"):
        return row
    return pytest.param(*row) if isinstance(row, tuple) else pytest.param(row)


def _mark(row: Any, slow: bool) -> Any:
    param = _param(row)
    return param._replace(marks=(*param.marks, SLOW if slow else EXHAUSTIVE))
