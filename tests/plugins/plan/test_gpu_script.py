"""`benchmarks/gpu.sh`, from end to end, on a CPU and with tiny models."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.processes import ROOT

ROWS = {
    "norms: sgd",
    "norms: lamb",
    "plan: memory",
    "roofline: tiny, fp32, roofline",
    "roofline: tiny, fp32, flops",
    "loop",
    "checkpoint: tiny, stall",
    "checkpoint: tiny, steps",
    "checkpoint: tiny, restore",
    "memory: tiny, fp32, none, planned",
    "memory: tiny, fp32, full, planned",
    "memory: tiny, fp32, plain Flax",
    "compile: tiny",
}


def in_table(text: str) -> set[str]:
    return {row.split(" | ")[0][2:] for row in re.findall(r"^\| .*", text, re.M)}


@pytest.mark.exhaustive
def test_the_script_for_a_gpu_writes_every_row_into_both_files(tmp_path: Path):
    env = {**os.environ, "PYTHON": sys.executable}
    command = [str(ROOT / "benchmarks/gpu.sh"), "--platform", "cpu", "--tiny", tmp_path]
    ended = subprocess.run(command, env=env, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    results = json.loads((tmp_path / "results.json").read_text())
    found = {row["name"]: row for row in results["rows"]}
    assert found.keys() >= ROWS
    assert all(found[name]["ratio"] > 0 for name in ROWS)
    # PyTorch is there, or the table says that it is not.
    assert [name for name in found if name.startswith("peer_torch")]
    assert in_table((tmp_path / "results.md").read_text()) == {"what", *found}
    assert results["versions"]["jax"] and results["device"] != "unknown"


def table(tmp_path: Path, status: str, printed: str) -> tuple[int, list[dict], str]:
    """Make the tables of one script; return the exit code, the rows and the table."""
    (tmp_path / "memory.status").write_text(status)
    (tmp_path / "memory.out").write_text(printed)
    script, out = ROOT / "benchmarks/gpu_table.py", tmp_path / "out"
    command = [sys.executable, str(script), str(tmp_path), str(out), "gpu.sh"]
    ended = subprocess.run(command, capture_output=True, text=True)
    rows = json.loads((out / "results.json").read_text())["rows"]
    return ended.returncode, rows, (out / "results.md").read_text()
