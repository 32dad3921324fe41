"""Row-by-row writers of CSV, JSON Lines, Parquet and NumPy files.

Each writer is a context manager, which yields a function to append rows.
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
# Column -> value.
Row = dict[str, Any]
WriteRows = Callable[[list[Row]], None]


@contextlib.contextmanager
def csv_table(path: Path, columns: Columns) -> Iterator[WriteRows]:
    """Write comma-separated values in UTF-8, with a header; None becomes an empty cell.

    Strings are escaped against formula injection (`cells.to_cell`).
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
    """Write each row as a JSON object on one line; NaN becomes null."""
    with path.open("w", encoding="utf-8") as file:
        yield lambda rows: file.writelines(
            json.dumps(finite(row), allow_nan=False, ensure_ascii=False) + "\n"
            for row in rows
        )


@contextlib.contextmanager
def parquet_table(path: Path, columns: Columns) -> Iterator[WriteRows]:
    """Write a Parquet file; integers and floats have 32 bits."""
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
    """Write a .npy file with an array, float32 (N, F), row by row.

    The file is not memory-mapped, because a write to a memory-mapped file kills the
    process if the disk is full.

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
    """Check that a table can be written in the format of its file extension.

    Args:
      option: Option that names the file, for messages.
      path: Path of the table.

    Raises:
      UserError: The extension is unknown, or the format needs a missing library.
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
