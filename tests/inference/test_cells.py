"""Names and labels in tables: no spreadsheet computes them, no terminal obeys them."""

import csv
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from jaxtrain.checkpoints.folder import DAMAGED
from jaxtrain.cli import main
from jaxtrain.config import Config, DataConfig
from jaxtrain.data.folder import open_folder
from jaxtrain.inference.cells import from_cell, to_cell
from jaxtrain.inference.tables import csv_table, json_lines, parquet_table
from jaxtrain.records.run_log import show_table
from jaxtrain.records.workdir import open_workdir
from tests.helpers.images import encode
from tests.helpers.rows import each_row

CELLS = {
    "cats/001.png": "cats/001.png",
    "": "",
    "=HYPERLINK(1)": "'=HYPERLINK(1)",
    "-2+3": "'-2+3",
    "@SUM(A1)": "'@SUM(A1)",
    "\t=1": r"'\t=1",
    "\uff1d1": "'\uff1d1",
    "'quoted'": "''quoted'",
    "\x1b]0;owned\x07.png": r"\x1b]0;owned\x07.png",
    "a\nb": r"a\nb",
    "a\\nb": r"a\\nb",
    "\u202egnp.exe": r"\u202egnp.exe",
    "2024\u202f11 caf\xe9 \u732b \U0001f408": "2024\u202f11 caf\xe9 \u732b \U0001f408",
    "-1": "-1",
    "5": "5",
}


@each_row("text", CELLS)
def test_cell_is_no_formula_and_has_no_controls(text: str):
    assert to_cell(text) == CELLS[text]


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_cell_is_harmless_and_gives_the_text_back(text: str):
    cell = to_cell(text)
    assert from_cell(cell) == text
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in cell)
    if cell[:1] in ("=", "+", "-", "@"):
        float(cell)


ROW = {"filename": "=1\x1b[2J", "index": -1, "label": "@x", "prob": -0.5, "error": None}
COLUMNS = {"filename": str, "index": int, "label": str, "prob": float, "error": str}


def test_csv_has_cells_and_numbers_as_they_are(tmp_path: Path):
    with csv_table(tmp_path / "x.csv", COLUMNS) as write:
        write([ROW])
    text = (tmp_path / "x.csv").read_bytes()
    assert (
        text
        == b"filename,index,label,prob,error\n" + rb"'=1\x1b[2J,-1,'@x,-0.5," + b"\n"
    )
    with (tmp_path / "x.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert from_cell(row["filename"]) == ROW["filename"]


def test_json_lines_have_the_text_itself(tmp_path: Path):
    with json_lines(tmp_path / "x.jsonl", COLUMNS) as write:
        write([ROW])
    text = (tmp_path / "x.jsonl").read_text()
    assert json.loads(text) == ROW and "\x1b" not in text


def test_parquet_has_the_text_itself(tmp_path: Path):
    parquet = pytest.importorskip("pyarrow.parquet")
    with parquet_table(tmp_path / "x.parquet", COLUMNS) as write:
        write([ROW])
    assert parquet.read_table(tmp_path / "x.parquet").to_pylist() == [ROW]


NAMES = [b"=1+1.png", b"@a.png", b"-b.png", b"\x1b[31mc.png", b"'d.png", b"e\\n.png"]


@pytest.mark.plugins
@pytest.mark.parametrize("more", [[], [b"f\ng.png"]])
def test_clean_list_names_files_exactly_and_is_read_back(more, tmp_path: Path):
    """It is a list for programs: each name is the file's own, byte for byte."""
    from jaxtrain.plugins.doctor.check import clean_names

    for folder in ("train/cat", "train/dog", "test/cat", "test/dog"):
        (tmp_path / folder).mkdir(parents=True)
        for name in [*NAMES, *more]:
            path = tmp_path / folder / os.fsdecode(name)
            path.write_bytes(encode(np.zeros((8, 8), np.uint8)))
    data = DataConfig(source=f"folder:{tmp_path}")
    store: Any = open_folder(str(tmp_path), data)[0]
    num = 4 * len([*NAMES, *more])
    scan: Any = SimpleNamespace(index=np.arange(num))
    (tmp_path / "good.txt").write_bytes(clean_names(store, scan, left_out={0}))
    include = str(tmp_path / "good.txt")
    data = DataConfig(source=f"folder:{tmp_path}", include=include)
    kept: Any = open_folder(str(tmp_path), data)[0]
    found = [kept.names[i] for i in range(len(kept.names))]
    assert found == [store.names[i] for i in range(1, num)]


def test_table_on_the_screen_obeys_nothing(capsys: pytest.CaptureFixture[str]):
    show_table("x", {"lowest recall": "0.1  [red]\x1b[2J[/red]", "[bold]": 1})
    told = capsys.readouterr().out
    assert r"[red]\x1b[2J[/red]" in told and "[bold]" in told
    assert "\x1b" not in told


def test_names_in_a_list_of_checkpoints_obey_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    open_workdir(tmp_path, Config(), {}, fresh=False)
    (tmp_path / "checkpoints" / f"{DAMAGED}-3\x1b[2J").mkdir()
    assert main(["checkpoint", "--list", "--workdir", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert rf"{DAMAGED}-3\x1b[2J" in told and "\x1b" not in told
