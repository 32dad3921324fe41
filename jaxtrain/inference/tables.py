"""Row-by-row writers of CSV, JSON Lines, Parquet and NumPy files.

Each writer is a context manager that yields a function that appends rows.
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

# Number of rows in a Parquet row group.
GROUP_ROWS = 8192

# Column -> type of its values; values may also be None.
Columns = dict[str, type]
# One value per column.
Row = dict[str, Any]
WriteRows = Callable[[list[Row]], None]


@contextlib.contextmanager
def csv_table(path: Path, columns: Columns) -> Iterator[WriteRows]:
    """Write comma-separated values with a header, UTF-8; None becomes an empty cell.

    Texts are escaped against formula injection (see `cells`).
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
    """Write one JSON object per row and line; NaN becomes null."""
    with path.open("w", encoding="utf-8") as file:
        yield lambda rows: file.writelines(
            json.dumps(finite(row), allow_nan=False, ensure_ascii=False) + "\n"
            for row in rows
        )


@contextlib.contextmanager
def parquet_table(path: Path, columns: Columns) -> Iterator[WriteRows]:
    """Write Parquet with 32-bit integers and floats."""
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
    """Write a NumPy file, float32 (N, F), row by row.

    The file is written as a stream, because writing to a memory-mapped file would kill
    the process if the disk is full.

    Args:
      path: Path of the file.
      shape: Final shape of the array, (N, F).
    """
    with path.open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        yield lambda rows: file.write(np.ascontiguousarray(rows, "<f4").data)


# File extension -> writer.
TABLES: dict[str, Callable[[Path, Columns], AbstractContextManager[WriteRows]]] = {
    ".csv": csv_table,
    ".jsonl": json_lines,
    ".parquet": parquet_table,
}


def check(option: str, path: Path) -> None:
    """Check that the format of a table, given by its file extension, can be written.

    Args:
      option: Option that names the file, for messages.
      path: Path of the table.

    Raises:
      UserError: The extension is unknown, or a library is missing.
    """
    ending = path.suffix.lower()
    if ending not in TABLES:
        raise UserError(
            f"{option} {path}: expected a file with the extension {', '.join(TABLES)}"
        )
    if ending == ".parquet" and extras.missing("pyarrow"):
        raise UserError(
            f"{option} {path}: Parquet requires pyarrow, which is not installed: "
            f"{extras.install('predict')}"
        )
