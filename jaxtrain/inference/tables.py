"""Tables written row by row: CSV, JSON lines, Parquet."""

import csv
import importlib.util
import json
from pathlib import Path
from typing import Any, Protocol

from jaxtrain.errors import UserError
from jaxtrain.inference.cells import to_cell
from jaxtrain.records.workdir import finite

# Of a row group of Parquet: enough to be read fast.
GROUP_ROWS = 8192

# Column -> the type of its values, any of which may be None.
Columns = dict[str, type]
Row = dict[str, Any]


class Table(Protocol):
    """Takes rows, which have a value for each column."""

    def __init__(self, path: Path, columns: Columns): ...

    def write(self, rows: list[Row]) -> None: ...

    def close(self) -> None:
        """Write what is left."""
        ...


class CsvTable:
    """Comma-separated values under their names, UTF-8; None is nothing.

    Texts are written so that no spreadsheet computes them (see `cells`).
    """

    def __init__(self, path: Path, columns: Columns):
        self._file = path.open("w", encoding="utf-8", newline="")
        rows = csv.DictWriter(self._file, columns, lineterminator="\n")
        rows.writeheader()
        self._rows = rows

    def write(self, rows: list[Row]) -> None:
        self._rows.writerows(
            {k: to_cell(v) if isinstance(v, str) else v for k, v in row.items()}
            for row in rows
        )

    def close(self) -> None:
        self._file.close()


class LinesTable:
    """A JSON object a line; NaN is null."""

    def __init__(self, path: Path, columns: Columns):
        self._file = path.open("w", encoding="utf-8")

    def write(self, rows: list[Row]) -> None:
        for row in rows:
            text = json.dumps(finite(row), allow_nan=False, ensure_ascii=False)
            self._file.write(text + "\n")

    def close(self) -> None:
        self._file.close()


class ParquetTable:
    """Parquet, numbers in 32 bits; pyarrow writes it."""

    def __init__(self, path: Path, columns: Columns):
        import pyarrow as pa
        from pyarrow import parquet

        kinds = {int: pa.int32(), float: pa.float32(), str: pa.string()}
        fields = [(name, kinds[kind]) for name, kind in columns.items()]
        self._schema = pa.schema(fields)
        self._writer = parquet.ParquetWriter(path, self._schema)
        self._rows: list[Row] = []
        self._table = pa.Table

    def write(self, rows: list[Row]) -> None:
        self._rows += rows
        if len(self._rows) >= GROUP_ROWS:
            self._flush()

    def close(self) -> None:
        try:
            if self._rows:
                self._flush()
        finally:
            self._writer.close()

    def _flush(self) -> None:
        rows, self._rows = self._rows, []
        self._writer.write_table(self._table.from_pylist(rows, schema=self._schema))


# Ending of a file's name -> its format.
TABLES: dict[str, type[Table]] = {
    ".csv": CsvTable,
    ".jsonl": LinesTable,
    ".parquet": ParquetTable,
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
    if TABLES[ending] is ParquetTable and not importlib.util.find_spec("pyarrow"):
        raise UserError(
            f"{option} {path}: Parquet needs the extra predict: pip install -e "
            "'.[predict]'"
        )


def open_table(path: Path, ending: str, columns: Columns) -> Table:
    """Open a table of the format that the ending stands for."""
    return TABLES[ending.lower()](path, columns)
