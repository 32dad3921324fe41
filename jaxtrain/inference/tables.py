"""Files written row by row: tables in CSV, JSON lines, Parquet, and arrays of NumPy.

Each is a context manager of a path that hands out what takes the next rows.
"""

import contextlib
import csv
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrain import extras
from jaxtrain.errors import UserError
from jaxtrain.inference.cells import to_cell
from jaxtrain.json_files.write import finite

# Of a row group of Parquet: enough to be read fast.
GROUP_ROWS = 8192

# Column -> the type of its values, any of which may be None.
Columns = dict[str, type]
# A value for each column.
Row = dict[str, Any]
WriteRows = Callable[[list[Row]], None]


@contextlib.contextmanager
def csv_table(path: Path, columns: Columns) -> Iterator[WriteRows]:
    """Write comma-separated values under their names, UTF-8; None is nothing.

    Texts are written so that no spreadsheet computes them (see `cells`).
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, columns, lineterminator="\n")
        table.writeheader()
        yield lambda rows: table.writerows(
            {k: to_cell(v) if isinstance(v, str) else v for k, v in row.items()}
            for row in rows
        )


@contextlib.contextmanager
def json_lines(path: Path, columns: Columns) -> Iterator[WriteRows]:
    """Write a JSON object a line; NaN is null."""
    with path.open("w", encoding="utf-8") as file:
        yield lambda rows: file.writelines(
            json.dumps(finite(row), allow_nan=False, ensure_ascii=False) + "\n"
            for row in rows
        )


@contextlib.contextmanager
def parquet_table(path: Path, columns: Columns) -> Iterator[WriteRows]:
    """Write Parquet, numbers in 32 bits, by pyarrow."""
    import pyarrow as pa
    from pyarrow import parquet

    kinds = {int: pa.int32(), float: pa.float32(), str: pa.string()}
    schema = pa.schema([(name, kinds[kind]) for name, kind in columns.items()])
    waiting: list[Row] = []

    def write(rows: list[Row], least: int = GROUP_ROWS) -> None:
        waiting.extend(rows)
        if len(waiting) >= least:
            writer.write_table(pa.Table.from_pylist(waiting, schema=schema))
            waiting.clear()

    with parquet.ParquetWriter(path, schema) as writer:
        yield write
        write([], least=1)


@contextlib.contextmanager
def npy_file(
    path: Path, shape: tuple[int, int]
) -> Iterator[Callable[[np.ndarray], Any]]:
    """Write float32 (N, F) for NumPy, whose rows are appended.

    It is written as a stream: a mapped file ends the process where a disk is full.
    """
    with path.open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        yield lambda rows: file.write(np.ascontiguousarray(rows, "<f4").data)


# Ending of a file's name -> its format.
TABLES: dict[str, Callable[[Path, Columns], AbstractContextManager[WriteRows]]] = {
    ".csv": csv_table,
    ".jsonl": json_lines,
    ".parquet": parquet_table,
}


def check(option: str, path: Path) -> None:
    """Check that a table can be written in the format that a file's name asks for.

    Raises:
      UserError: it cannot.
    """
    ending = path.suffix.lower()
    if ending not in TABLES:
        raise UserError(
            f"{option} {path}: the format goes by the ending: {', '.join(TABLES)}"
        )
    if ending == ".parquet" and extras.missing("pyarrow"):
        raise UserError(
            f"{option} {path}: Parquet needs the extra predict: "
            f"{extras.install('predict')}"
        )
